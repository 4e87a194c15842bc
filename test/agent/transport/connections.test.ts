import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'

describe('the gRPC stack', () => {
  it('is loaded on the first HTTP/2 preface, and not before', async () => {
    const { stdout } = await promisify(execFile)(process.execPath, [
      join(import.meta.dirname, 'lazy-grpc.ts'),
    ])
    expect(JSON.parse(stdout)).toEqual([false, false, true])
  })
})
