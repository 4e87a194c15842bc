import { beforeAll, describe, expect, it } from 'vitest'
import { buildVminit } from '../../scripts/build-native.ts'
import { run } from './vminit/supervised.ts'

let vminit: string

beforeAll(async () => {
  vminit = await buildVminit()
})

describe('vminit tool', () => {
  it('takes back what its caller has raised for itself', async () => {
    const raise = 'echo -500 >/proc/self/oom_score_adj; ulimit -Sn 4096; trap "" TERM USR1'
    const show = 'cat /proc/self/oom_score_adj; ulimit -Sn; grep -E "Sig(Blk|Ign)" /proc/self/status'
    const { status, stdout } = await run(['bash', '-c', `${raise}; exec ${vminit} tool -- bash -c '${show}'`])
    expect(status).toBe(0)
    expect(stdout.trimEnd().split(/\s+/)).toEqual([
      '0',
      '1024',
      'SigBlk:',
      '0000000000000000',
      'SigIgn:',
      '0000000000000000',
    ])
  })

  it('keeps limits that are lower than the defaults', async () => {
    const { stdout } = await run([
      'bash',
      '-c',
      `ulimit -n 100; exec ${vminit} tool -- bash -c 'ulimit -Sn; ulimit -Hn'`,
    ])
    expect(stdout).toBe('100\n100\n')
  })

  it('ends as the program ends', async () => {
    expect(await run([vminit, 'tool', '--', 'sh', '-c', 'exit 42'])).toMatchObject({ status: 42 })
  })

  it('gives the program another name', async () => {
    const { stdout } = await run([vminit, 'tool', '--as', 'echo', '--', '/bin/busybox', 'a', '-- b'])
    expect(stdout).toBe('a -- b\n')
    expect(await run([vminit, 'tool', '--as', 'echo'])).toMatchObject({ status: 2 })
  })

  it('says which program it cannot run', async () => {
    expect(await run([vminit, 'tool', '--', 'no-such-program'])).toEqual({
      status: 127,
      stdout: '',
      stderr: 'vminit: tool: cannot run no-such-program: No such file or directory\n',
    })
    expect(await run([vminit, 'tool', '--', '/etc/passwd'])).toMatchObject({ status: 126 })
  })
})
