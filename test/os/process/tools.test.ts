import { execFile } from 'node:child_process'
import { closeSync, existsSync, openSync, readFileSync, readlinkSync } from 'node:fs'
import { getPriority } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { buildAddon } from '../../../src/build/native.ts'
import type { Native } from '../../../src/os/native.ts'
import { linuxTools } from '../../../src/os/process/linux-tools.ts'
import type { Tools } from '../../../src/os/process/tools.ts'
import { linuxStreams } from '../../../src/os/streams/linux-streams.ts'
import { FakeTools } from '../../support/fakes/process/fake-tools.ts'
import { realNative } from '../../support/os/real-native.ts'
import { processState } from '../../support/processes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let native: Native
let tools: Tools
let folder: string
beforeAll(async () => {
  native = await realNative()
  tools = linuxTools(native, linuxStreams(native))
  folder = temporaryFolder()
})

function shell(script: string, options?: Parameters<Tools['run']>[1]) {
  return tools.run(['/bin/sh', '-c', script], options)
}

const TALKER = ['/bin/sh', '-c', 'echo out; echo err >&2; exit 7'] as const
const SLEEPER = ['/bin/sleep', '100'] as const
const MISSING = ['/no/such/program'] as const

function scripted(): FakeTools {
  const fake = new FakeTools()
  fake.script((argv) => {
    if (argv === TALKER) return { exitCode: 7, stdout: 'out\n', stderr: 'err\n' }
    return argv === SLEEPER ? Promise.withResolvers<never>().promise : undefined
  })
  return fake
}

describe.each([
  ['linuxTools', () => tools],
  ['FakeTools', scripted],
])('%s', (_name, build) => {
  it('returns exit code and both outputs', async () => {
    expect(await build().run(TALKER)).toEqual({ exitCode: 7, stdout: 'out\n', stderr: 'err\n' })
  })

  it('ends with its signal, also when that fired before', async () => {
    const stop = new AbortController()
    const ended = expect(build().run(SLEEPER, { signal: stop.signal })).rejects.toThrow('enough')
    stop.abort(new Error('enough'))
    await ended
    await expect(build().run(TALKER, { signal: stop.signal })).rejects.toThrow('enough')
  })

  it('names a program that it cannot start', async () => {
    const missing = { code: 'INTERNAL', message: expect.stringMatching(/^start \/no\/such\/program: /) }
    await expect(build().run(MISSING)).rejects.toMatchObject(missing)
    await expect(build().startOnTerminal(MISSING, 0, {})).rejects.toMatchObject(missing)
  })
})

describe('linuxTools', () => {
  it('decodes the output as latin1 on request', async () => {
    const { stdout } = await shell("printf 'a\\374'", { encoding: 'latin1' })
    expect(Buffer.from(stdout, 'latin1')).toEqual(Buffer.from([0x61, 0xfc]))
  })

  it('returns 128 + the signal that ended a program', async () => {
    expect((await shell('kill -SEGV $$')).exitCode).toBe(139)
  })

  it('writes stdin, which is empty by default', async () => {
    expect((await shell('cat', { stdin: 'from us' })).stdout).toBe('from us')
    expect((await shell('wc -c')).stdout.trim()).toBe('0')
  })

  it('accepts a program that does not read its stdin', async () => {
    expect((await shell('exit 3', { stdin: Buffer.alloc(4 * 1024 * 1024) })).exitCode).toBe(3)
  })

  it('passes only PATH and the given environment', async () => {
    const { stdout } = await tools.run(['/usr/bin/env'], { env: { ONE: '1' } })
    expect(stdout.trim().split('\n').sort()).toEqual(['ONE=1', expect.stringMatching(/^PATH=/)])
  })

  it('gives the program another name', async () => {
    const { stdout } = await tools.run(['/bin/busybox', 'a', '-- b'], { name: 'echo' })
    expect(stdout).toBe('a -- b\n')
  })

  it('runs in the given directory', async () => {
    expect((await shell('pwd', { cwd: '/usr' })).stdout).toBe('/usr\n')
  })

  it('leaks neither descriptors nor limits of the agent', async () => {
    const streams = linuxStreams(native)
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const { stdout } = await shell('cat /proc/self/oom_score_adj; ulimit -n; ls -l /proc/self/fd')
    expect(stdout.split('\n').slice(0, 2)).toEqual(['0', '1024'])
    expect(stdout).not.toContain(readlinkSync(`/proc/self/fd/${parentEnd}`))
    streams.close(parentEnd)
    streams.close(childEnd)
  })

  it('starts programs while more descriptors are open than a program may have', async () => {
    const open = Array.from({ length: 1100 }, () => openSync('/dev/null', 'r'))
    try {
      expect((await shell('ulimit -n')).stdout).toBe('1024\n')
    } finally {
      for (const fd of open) closeSync(fd)
    }
  })

  it('keeps limits that are lower than the defaults', async () => {
    expect(await startedBy('ulimit -n 100; exec', 'ulimit -Sn; ulimit -Hn')).toBe('100\n100\n')
  })

  it('passes on a priority below the ordinary, but not one above', async () => {
    expect(await startedBy('exec nice -n -10', 'nice')).toBe('0\n')
    expect(await startedBy('exec nice -n 5', 'nice')).toBe(`${getPriority() + 5}\n`)
  })

  it('gives every signal its default action, and blocks none', async () => {
    // Node itself ignores SIGPIPE.
    const { stdout } = await shell('grep -E "Sig(Blk|Ign)" /proc/self/status')
    expect(stdout.match(/[0-9a-f]{16}/g)).toEqual(['0000000000000000', '0000000000000000'])
  })

  it('keeps the beginning of an output that is too long', async () => {
    const { stdout, stderr } = await shell('printf 0123456789; printf abc >&2', { maxOutputBytes: 4 })
    expect([stdout, stderr]).toEqual(['0123\n[6 more bytes dropped]', 'abc'])
  })

  it('passes descriptors, which stay open here', async () => {
    const streams = linuxStreams(native)
    const { parentEnd, childEnd } = streams.pipe('child-writes')
    const result = await shell('echo to the pipe; echo captured >&2', {
      stdio: [undefined, childEnd, undefined],
    })
    expect(result).toEqual({ exitCode: 0, stdout: '', stderr: 'captured\n' })
    expect(streams.tryRead(parentEnd, 100)?.toString()).toBe('to the pipe\n')
    expect(streams.tryRead(parentEnd, 100)).toBeUndefined()
    streams.close(childEnd)
    streams.close(parentEnd)
  })

  it('drops the output that nobody wants', async () => {
    const result = await shell('test /proc/self/fd/1 -ef /dev/null && echo null >&2; echo dropped', {
      dropsStdout: true,
    })
    expect(result).toEqual({ exitCode: 0, stdout: '', stderr: 'null\n' })
  })

  it('does not wait for a descendant that holds the output open', async () => {
    const fifo = join(folder, 'release')
    const { exitCode, stdout } = await shell(`mkfifo ${fifo}; echo done; (read line < ${fifo}) & exit 5`)
    expect([exitCode, stdout]).toEqual([5, 'done\n'])
    await shell(`echo > ${fifo}`)
  })

  it('kills the process group on timeout', async () => {
    const pidFile = join(folder, 'timed-out')
    const run = shell(`(echo $$ > ${pidFile}; exec sleep 100) & wait`, { timeoutMs: 500 })
    await expect(run).rejects.toThrow('run /bin/sh: not finished after 500 ms')
    await expect.poll(() => isAlive(pidFile)).toBe(false)
  })

  it('kills the process group when its signal fires', async () => {
    const pidFile = join(folder, 'aborted')
    const stop = new AbortController()
    const run = shell(`sleep 100 & echo $! > ${pidFile}; wait`, { signal: stop.signal })
    const expectation = expect(run).rejects.toThrow('enough')
    await expect.poll(() => existsSync(pidFile) && readFileSync(pidFile, 'utf8')).toMatch(/\n$/)
    stop.abort(new Error('enough'))
    await expectation
    await expect.poll(() => isAlive(pidFile)).toBe(false)
    await expect(shell('true', { signal: stop.signal })).rejects.toThrow('enough')
  })

  it('names a program that cannot be started', async () => {
    const missing = { message: 'start /no/such/program: ENOENT', errno: 'ENOENT' }
    await expect(tools.run(['/no/such/program'])).rejects.toMatchObject(missing)
    await expect(tools.run(['/etc/passwd'])).rejects.toMatchObject({ errno: 'EACCES' })
  })

  it('returns the output of a program that exits with the status of a missing one', async () => {
    expect((await shell('echo oops >&2; exit 127')).stderr).toBe('oops\n')
  })
})

/** The output of `script`. The shell text `prefix`, such as `exec nice -n 5`, sets up the process that starts it. */
async function startedBy(prefix: string, script: string): Promise<string> {
  const program = `
    const holder = { exports: {} }
    process.dlopen(holder, process.argv[1])
    const { spawn, duplicate } = holder.exports
    spawn('/bin/sh', ['sh', '-c', process.argv[2]], [], '/', -1, duplicate(1), duplicate(2), 0, false)`
  const argv = ['-c', `${prefix} "$0" -e "$@"`, process.execPath, program, await buildAddon(), script]
  return (await promisify(execFile)('/bin/sh', argv)).stdout
}

/** A zombie does not count as alive. */
function isAlive(pidFile: string): boolean {
  if (!existsSync(pidFile)) return false
  const state = processState(Number(readFileSync(pidFile, 'utf8')))?.state ?? 'X'
  return !['Z', 'X'].includes(state)
}
