import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import type { Tools } from '../../../src/os/process/tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { realNative } from '../../support/os/real-native.ts'
import { guestProgram } from '../../support/programs/guest/guest-program.ts'
import { DENIED_SOCKETS } from '../../support/programs/vsock-attempts.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

describe('a program that is denied AF_VSOCK and io_uring', () => {
  let tools: Tools
  let program: string
  beforeAll(async () => {
    const native = await realNative()
    tools = linuxTools(native, linuxStreams(native))
    program = join(temporaryFolder(), 'attempts')
    writeFileSync(program, await guestProgram('vsock-attempts'), { mode: 0o755 })
  })

  it('makes no socket of that family through any call of any ABI, and others as before', async () => {
    const { stdout } = await tools.run([program, 'sockets'], { denied: ['vsock', 'io_uring'] })
    expect(stdout).toBe(DENIED_SOCKETS)
  })

  it('passes the filter on to its children, and may gain other rights as before', async () => {
    const look = `grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status; ${program} bind 1024 1025`
    const { stdout } = await tools.run(['/bin/sh', '-c', look], { denied: ['vsock'] })
    expect(stdout).toBe('NoNewPrivs:\t0\nSeccomp:\t2\n1024 EPERM\n1025 EPERM\n')
  })

  it('is the only one with a filter', async () => {
    const { stdout } = await tools.run([
      '/bin/sh',
      '-c',
      'grep ^Seccomp: /proc/self/status /proc/$PPID/status',
    ])
    expect(stdout).toMatch(/self.*\t0\n.*\t0\n/)
  })
})
