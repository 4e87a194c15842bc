import { describe, expect, it } from 'vitest'
import { parseLayerOptions } from '../../../../src/handlers/storage/drivers/image/layer-options.ts'
import { storageOf } from '../../../support/handlers/storage/storage-builder.ts'

describe('parseLayerOptions', () => {
  it('reads as many folders as fit into a message in their order, in no more time than they take', () => {
    const folders = Array.from({ length: 80_000 }, (_, index) => `folder-${index}`)
    const options = folders.map((folder) => `X-kata.mkdir.path=${folder}`)
    expect(parseLayerOptions(storageOf({ options })).values('mkdir.path')).toEqual(folders)
  })
})
