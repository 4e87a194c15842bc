import { describe, expect, it } from 'vitest'
import { checkContainerId } from '../../../src/handlers/container/create-container.ts'

describe('checkContainerId', () => {
  it.each(['ab', 'A1', '0-_.', 'a'.repeat(255)])('accepts %s', (id) => {
    expect(() => checkContainerId(id)).not.toThrow()
  })

  it.each(['', 'a', '.a', '-a', '_a', 'a/b', '..', 'a b', 'a\n', 'ä1', 'a'.repeat(256), 'shared', 'sandbox'])(
    'refuses %j',
    (id) => {
      expect(() => checkContainerId(id)).toThrow(`'${id}'`)
    },
  )
})
