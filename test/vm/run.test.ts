import { execFileSync, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { on } from 'node:events'
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { projectRoot } from '../../scripts/cache.ts'
import { cannotBoot } from '../support/vm/boot-guest.ts'
import {
  foldersOf,
  MICROVM,
  type MicrovmProcess,
  programsOf,
  runMicrovm,
  startMicrovm,
} from '../support/vm/microvm-process.ts'

const folder = mkdtempSync(join(tmpdir(), 'run-test-'))
afterAll(() => rmSync(folder, { recursive: true }))

/** Everything is built and fetched by a first run, so that no test finds its progress on stderr. */
beforeAll(async () => {
  if (cannotBoot() === undefined) await runMicrovm(['true'])
})

/** Reads stdout until `word` appears. */
async function appears(running: MicrovmProcess, word: string): Promise<void> {
  let seen = ''
  for await (const [chunk] of on(running.stdout, 'data', { close: ['end'] })) {
    seen += String(chunk)
    if (seen.includes(word)) return
  }
  throw new Error(`stdout ended before ${word}: ${(await running.result).stderr}`)
}

/** Waits for the end of processes that are not ours. */
function awaitEnd(pids: readonly number[]): void {
  for (const pid of pids) spawnSync('tail', [`--pid=${pid}`, '-f', '/dev/null'], { timeout: 10_000 })
}

const loop = 'while :; do sleep 0.1; done'

describe.skipIf(cannotBoot() !== undefined)('./microvm run', () => {
  it('keeps the streams apart and exits with the status of the command', async () => {
    const result = await runMicrovm(['sh', '-c', 'echo out; echo err >&2; exit 7'])
    expect(result).toMatchObject({ status: 7, stdout: 'out\n', stderr: 'err\n' })
  })

  it('pipes stdin through with its end', async () => {
    const { stdout } = await runMicrovm(['wc', '-c'], 'x'.repeat(100_000))
    expect(stdout.trim()).toBe('100000')
  })

  it('passes 200 MB unchanged', async () => {
    const block = randomBytes(1 << 20)
    const hash = createHash('sha256')
    const blocks = function* () {
      for (let count = 0; count < 200; count++) {
        hash.update(block)
        yield block
      }
    }
    const running = startMicrovm(['sha256sum'])
    await pipeline(Readable.from(blocks()), running.stdin)
    expect((await running.result).stdout).toBe(`${hash.digest('hex')}  -\n`)
  })

  it('ends with the status of a broken pipe when nobody reads its output', () => {
    const pipeline = '{ "$0" run yes; echo $? >&2; } | head -n 1'
    const { stdout, stderr } = spawnSync('sh', ['-c', pipeline, MICROVM], { encoding: 'utf8' })
    expect({ stdout, stderr }).toEqual({ stdout: 'y\n', stderr: '141\n' })
  })

  it('says in one line that its output cannot be written', () => {
    const { status, stderr } = spawnSync('sh', ['-c', '"$0" run echo out >/dev/full', MICROVM], {
      encoding: 'utf8',
    })
    expect(status).toBe(125)
    expect(stderr).toMatch(/^microvm: cannot write the output: .*ENOSPC.*\n$/)
  })

  it('is a terminal that resizes and lives through Ctrl-C', () => {
    const driver = join(projectRoot, 'test/support/vm/drive-terminal.py')
    const { status, stderr } = spawnSync('/usr/bin/python3', [driver, MICROVM], { encoding: 'utf8' })
    expect(stderr).toBe('')
    expect(status).toBe(0)
  })

  it('forwards the first signal, and leaves nothing behind', async () => {
    const running = startMicrovm(['sh', '-c', `trap 'exit 9' TERM; echo up; ${loop}`])
    await appears(running, 'up')
    const tool = running.toolPid()
    running.kill('SIGTERM')
    expect(await running.result).toMatchObject({ status: 9 })
    expect([foldersOf(tool), programsOf(tool)]).toEqual([[], []])
  })

  it('ends the microVM at the second signal, and leaves nothing behind', async () => {
    const running = startMicrovm(['sh', '-c', `trap 'echo ignored' INT; echo up; ${loop}`])
    await appears(running, 'up')
    const tool = running.toolPid()
    expect(programsOf(tool).length).toBeGreaterThan(0)
    running.kill('SIGINT')
    await appears(running, 'ignored')
    running.kill('SIGINT')
    expect(await running.result).toMatchObject({ status: 130 })
    expect([foldersOf(tool), programsOf(tool)]).toEqual([[], []])
  })

  it('takes QEMU along when it is killed, and the next run removes its files', async () => {
    const running = startMicrovm(['sh', '-c', `echo up; ${loop}`])
    await appears(running, 'up')
    const tool = running.toolPid()
    const programs = programsOf(tool)
    running.kill('SIGKILL')
    await running.result
    awaitEnd(programs)
    expect(programsOf(tool)).toEqual([])
    expect(await runMicrovm(['true'])).toMatchObject({ status: 0 })
    expect(foldersOf(tool)).toEqual([])
  })

  it('shows the last lines of the console when the guest crashes', async () => {
    const { status, stderr, stdout } = await runMicrovm([
      '--append',
      'rdinit=/nothing root=/dev/none',
      'true',
    ])
    expect({ status, stdout }).toEqual({ status: 125, stdout: '' })
    expect(stderr).toMatch(/^console: .*Kernel panic/m)
    expect(stderr).toMatch(/^microvm: .*QEMU exited/m)
  })

  it('says what cannot be started', async () => {
    const { status, stderr } = await runMicrovm(['/no/such/program'])
    expect(status).toBe(125)
    expect(stderr).toMatch(/^microvm: .*\/no\/such\/program.*\n$/)
  })

  it('runs the command of an OCI image as its user in its environment', async () => {
    const layout = join(folder, 'layout')
    const image = `${layout}:latest`
    const umoci = (...args: string[]) => execFileSync('umoci', args, { stdio: 'pipe' })
    umoci('init', '--layout', layout)
    umoci('new', '--image', image)
    const files = join(folder, 'files')
    mkdirSync(files)
    execFileSync('cp', ['/bin/busybox', join(files, 'sh')])
    writeFileSync(join(files, 'passwd'), 'app:x:1234:1234::/:/sh\n')
    umoci('insert', '--image', image, files, '/bin')
    const config = [
      '--config.entrypoint=/bin/sh',
      '--config.cmd=-c',
      '--config.cmd=echo $GREETING; pwd; id -u',
    ]
    umoci('config', '--image', image, ...config, '--config.env=GREETING=hello', '--config.user=1234')
    umoci('config', '--image', image, '--config.workingdir=/bin')
    const { status, stdout, stderr } = await runMicrovm(['--rootfs', layout])
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: 'hello\n/bin\n1234\n', stderr: '' })
  })
})

describe.skipIf(cannotBoot() !== undefined)('./microvm run on other machines', () => {
  it.each([
    ['pc', {}],
    ['microvm', {}],
    ['q35', { MICROVM_VSOCK: 'tcp' }],
  ])('runs a container on %s with %j', async (machine, env) => {
    const running = startMicrovm(['--machine', machine, 'echo', 'there'], env)
    running.stdin.end()
    expect(await running.result).toMatchObject({ status: 0, stdout: 'there\n' })
  })
})
