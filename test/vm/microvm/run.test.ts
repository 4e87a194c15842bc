import { execFileSync, spawnSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { on } from 'node:events'
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { beforeAll, describe, expect, it } from 'vitest'
import { connectAgent } from '../../../src/client/connection/connect-agent.ts'
import { connectSocket } from '../../../src/client/connection/connect-socket.ts'
import { hybridHandshake } from '../../../src/client/connection/dial.ts'
import { agentOf, rootPathOf } from '../../../src/client/container/container-session.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { chooseLink } from '../../../src/host/qemu/vsock/choose-link.ts'
import { AGENT_PORT } from '../../../src/host/qemu/vsock/guest-link.ts'
import { ensureContainerRoot } from '../../../src/image/container-root.ts'
import { ensureImage } from '../../../src/image/ensure-image.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import type { TtrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { podOf } from '../../support/containers/pod.ts'
import { ctl } from '../../support/ctl/run-ctl.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { startAgentKiller } from '../../support/vm/agent-killer.ts'
import { CRUN, cannotBoot, progress } from '../../support/vm/boot-guest.ts'
import { guestSocketIn } from '../../support/vm/dial-guest.ts'
import {
  foldersOf,
  type MicrovmProcess,
  programsOf,
  runMicrovm,
  startMicrovm,
} from '../../support/vm/microvm-process.ts'

const folder = temporaryFolder()

/** A second emulated CPU and runc make a guest slower. */
const ONE_CPU = ['--cpus', '1', '--append', CRUN]

/** Builds and fetches everything first, so that no progress messages appear on stderr. */
beforeAll(async () => {
  if (cannotBoot() !== undefined) return
  await ensureImage({ progress })
  await ensureContainerRoot(progress)
  await chooseLink({ override: process.env.MICROVM_VSOCK, progress })
})

async function appears(running: MicrovmProcess, word: string): Promise<string> {
  let seen = ''
  for await (const [chunk] of on(running.stdout, 'data', { close: ['end'] })) {
    seen += String(chunk)
    if (seen.includes(word)) return seen
  }
  throw new Error(`stdout ended before ${word}: ${(await running.result).stderr}`)
}

/** `tail` waits for processes that are no children of the test. */
function awaitEnd(pids: readonly number[]): void {
  for (const pid of pids) spawnSync('tail', [`--pid=${pid}`, '-f', '/dev/null'], { timeout: 10_000 })
}

const ROOT = rootPathOf('container')

async function secondClient(running: MicrovmProcess): Promise<TtrpcClient> {
  const [name = ''] = foldersOf(running.toolPid())
  const connect = async (signal: AbortSignal) => {
    const socket = await connectSocket({ path: guestSocketIn(join(tmpdir(), name)) }, signal)
    await hybridHandshake(socket, AGENT_PORT, signal)
    return socket
  }
  return await connectAgent({ connect }, AbortSignal.timeout(60_000))
}

function checkEverySecond(client: TtrpcClient): { end(): Promise<number> } {
  const health = clientFor(HealthDefinition, client)
  let isOver = false
  const checking = (async () => {
    let slowestMs = 0
    while (!isOver) {
      const begun = performance.now()
      expect(await health.check({}, { timeoutMs: 30_000 })).toMatchObject({ status: 1 })
      slowestMs = Math.max(slowestMs, performance.now() - begun)
      await delay(1000)
    }
    return slowestMs
  })()
  checking.catch(() => {})
  return {
    end: () => {
      isOver = true
      return checking
    },
  }
}

const loop = 'while :; do sleep 0.1; done'

/** Tests that need no microVM are in test/host/microvm/microvm-run.test.ts. */
describe.skipIf(cannotBoot() !== undefined)('./microvm run', () => {
  it('passes on 20 MB of stdin with its end, both outputs, a signal and the status, although the agent in the guest is killed ten times, and leaves nothing behind', async () => {
    const input = randomBytes(20 << 20)
    const count = 'i=0; while echo $i; do i=$((i+1)); usleep 100000; done'
    const script = `trap 'exit 9' TERM; sha256sum; echo err >&2; ${count}`
    const running = startMicrovm([...ONE_CPU, 'sh', '-c', script], { MICROVM_VSOCK: 'vhost-user' })
    await pipeline(Readable.from([input]), running.stdin)
    let output = await appears(running, '1\n')
    running.stdout.on('data', (chunk) => {
      output += String(chunk)
    })
    const tool = running.toolPid()
    const second = await secondClient(running)
    const checks = checkEverySecond(second)
    const pod = podOf(agentOf(second), ROOT)
    const killer = await startAgentKiller(pod)
    const killed = new Set<string>()
    for (let kill = 0; kill < 10; kill++) {
      await killer.begin(0)
      killed.add(await killer.killed())
    }
    expect(killed.size).toBe(10)
    const lines = output.length
    await expect.poll(() => output.length, { timeout: 60_000 }).toBeGreaterThan(lines)
    const slowestMs = await checks.end()
    second.close()
    running.kill('SIGTERM')
    expect(await running.result).toMatchObject({ status: 9, stderr: 'err\n' })
    const [hash, ...numbers] = output.trimEnd().split('\n')
    expect(hash).toBe(`${createHash('sha256').update(input).digest('hex')}  -`)
    expect(numbers).toEqual(numbers.map((_, line) => String(line)))
    expect([foldersOf(tool), programsOf(tool)]).toEqual([[], []])
    expect(slowestMs).toBeLessThan(30_000)
  }, 480_000)

  it('is found by agent-ctl until it is killed, which ends QEMU, and the next run removes its files', async () => {
    const registry = join(folder, 'machines')
    const env = { MICROVM_REGISTRY: registry }
    const agentCtl = (...words: readonly string[]) => ctl(words, { env })
    const running = startMicrovm([...ONE_CPU, '--name', 'web', 'sh', '-c', `echo up; ${loop}`], env)
    // It waits for the machine, then for its agent.
    expect(await agentCtl('--wait', '-o', 'json', 'Check')).toMatchObject({
      stdout: '{"status":"SERVING"}\n',
    })
    await appears(running, 'up')
    const tool = running.toolPid()
    expect(await agentCtl('ps')).toMatchObject({
      status: 0,
      stdout: expect.stringMatching(/^container .* sh$/m),
    })
    expect(await agentCtl('-a', 'microvm://web', 'ps')).toMatchObject({ status: 0 })
    const second = startMicrovm(['--name', 'web', 'true'], env)
    const refusal = `microvm: machine "web": runs already with pid ${tool}, want another --name\n`
    expect(await second.result).toMatchObject({ status: 125, stdout: '', stderr: refusal })
    const programs = programsOf(tool)
    running.kill('SIGKILL')
    await running.result
    awaitEnd(programs)
    expect(programsOf(tool)).toEqual([])
    expect((await agentCtl('ps')).stderr).toContain('no machine of this user runs')
    expect(readdirSync(registry)).toEqual(['web'])
    const malformed = join(folder, 'malformed.yaml')
    writeFileSync(malformed, '[')
    const next = startMicrovm(['--metadata', malformed], env)
    expect(await next.result).toMatchObject({ status: 2 })
    expect([foldersOf(tool), readdirSync(registry)]).toEqual([[], []])
  })

  it('says that QEMU has ended when that is killed beside a container', async () => {
    const running = startMicrovm([...ONE_CPU, 'sh', '-c', `echo up; ${loop}`])
    await appears(running, 'up')
    const tool = running.toolPid()
    const qemu = programsOf(tool).find((pid) => readFileSync(`/proc/${pid}/comm`, 'utf8').startsWith('qemu-'))
    // QEMU closes its devices first, so the connection ends before QEMU does.
    process.kill(qemu ?? 0, 'SIGTERM')
    const { status, stderr } = await running.result
    expect(status).toBe(125)
    expect(stderr).toMatch(/^microvm: QEMU exited with status 0: .*terminating on signal 15.*\n$/m)
    expect([foldersOf(tool), programsOf(tool)]).toEqual([[], []])
  })

  it('shows the last lines of the console when the guest crashes, and says last that its memory ran out', async () => {
    // The kernel reserves as many huge pages as it can.
    const words = [...ONE_CPU, '--memory', '128', '--append', 'hugepages=999', 'true']
    const { status, stderr, stdout } = await runMicrovm(words)
    expect({ status, stdout }).toEqual({ status: 125, stdout: '' })
    expect(stderr).toMatch(/^console: .*Kernel panic/m)
    const last = 'microvm: the guest ran out of memory: it has 128 MiB; give it more with --memory'
    expect(stderr.trim().split('\n').at(-1)).toBe(last)
  })

  it('says which root device did not come, and ends the guest', async () => {
    const { status, stderr } = await runMicrovm([...ONE_CPU, '--append', 'root=/dev/vdz1 rootwait=1', 'true'])
    expect(status).toBe(125)
    expect(stderr).toMatch(
      /^console: vminit: root=\/dev\/vdz1: no such device after 1 s, want one of:.* vda/m,
    )
    expect(stderr).toMatch(/^microvm: the guest has shut down$/m)
  })

  it('refuses a word for the agent that it does not know, before it boots a guest', async () => {
    const words = ['--append', 'quiet agent.debug_consol', '--append', 'agent.log=debug', 'true']
    expect(await runMicrovm(words)).toMatchObject({
      status: 2,
      stderr: 'microvm: --append agent.debug_consol: unknown setting, did you mean "agent.debug_console"?\n',
    })
  })

  it('says once, and last, which setting the agent does not take', async () => {
    const { status, stderr } = await runMicrovm([...ONE_CPU, '--append', 'agent.log=nonsense', 'true'])
    expect(status).toBe(125)
    const sentences = stderr.split('\n').filter((line) => line.includes('agent.log=nonsense: unknown level'))
    expect(sentences).toEqual([
      expect.stringMatching(/^console: agent: /),
      expect.stringMatching(/^microvm: the agent did not start: /),
    ])
    expect(stderr.trim().split('\n').at(-1)).toBe(sentences[1])
  })

  it('runs the command of an OCI image as its user in its environment, on machine pc, ends the microVM at the second signal, and leaves nothing behind', async () => {
    const layout = join(folder, 'layout')
    const image = `${layout}:latest`
    const umoci = (...args: string[]) => execFileSync('umoci', args, { stdio: 'pipe' })
    umoci('init', '--layout', layout)
    umoci('new', '--image', image)
    const files = join(folder, 'files')
    mkdirSync(files)
    execFileSync('cp', ['/bin/busybox', join(files, 'sh')])
    umoci('insert', '--image', image, files, '/bin')
    const passwd = join(folder, 'passwd')
    writeFileSync(passwd, 'app:x:1234:1234::/:/sh\n')
    umoci('insert', '--image', image, passwd, '/etc/passwd')
    const config = [
      '--config.entrypoint=/bin/sh',
      '--config.cmd=-c',
      `--config.cmd=trap 'echo ignored' INT; echo $GREETING; pwd; id -u; ${loop}`,
    ]
    umoci('config', '--image', image, ...config, '--config.env=GREETING=hello', '--config.user=app')
    umoci('config', '--image', image, '--config.workingdir=/bin')
    const running = startMicrovm([...ONE_CPU, '--machine', 'pc', '--rootfs', layout])
    expect(await appears(running, '1234')).toBe('hello\n/bin\n1234\n')
    const tool = running.toolPid()
    expect(programsOf(tool).length).toBeGreaterThan(0)
    running.kill('SIGINT')
    await appears(running, 'ignored')
    running.kill('SIGINT')
    expect(await running.result).toMatchObject({ status: 130 })
    expect([foldersOf(tool), programsOf(tool)]).toEqual([[], []])
  })
})

describe.skipIf(cannotBoot() !== undefined)('./microvm run on other machines', () => {
  it('runs a container on machine microvm, as a user of its root, and says that it ran out of memory', async () => {
    const machine = ['--machine', 'microvm', '--memory', '256']
    const script = 'id -u; id -g; exec tail /dev/zero'
    const running = startMicrovm([...machine, '-u', 'nobody:tty', 'sh', '-c', script])
    running.stdin.end()
    const { status, stdout, stderr } = await running.result
    expect({ status, stdout }).toEqual({ status: 137, stdout: '65534\n5\n' })
    expect(stderr).toMatch(/^microvm: the container ran out of memory, in a guest of 256 MiB; .*--memory\n$/m)
  })

  it('runs a container on a root in persistent memory with direct access, over TCP, in 128 MiB', async () => {
    const root = ['--form', 'partitioned', '--root-device', 'nvdimm', '--memory', '128']
    // The kernel logs on the console how it mounts the root.
    const shown = ['--verbose', '--append', 'loglevel=7']
    const running = startMicrovm([...ONE_CPU, ...root, ...shown, 'echo', 'there'], { MICROVM_VSOCK: 'tcp' })
    running.stdin.end()
    const { status, stdout, stderr } = await running.result
    expect({ status, stdout }).toEqual({ status: 0, stdout: 'there\n' })
    expect(stderr).toMatch(/^console: .*erofs: \(device pmem0p1\): mounted/m)
    // Linux 6.12 mentions direct access only when it mounts the root without it.
    expect(stderr).not.toContain('unsupported by block device')
  })
})
