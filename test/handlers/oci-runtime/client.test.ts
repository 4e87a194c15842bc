import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../../src/base/abort.ts'
import { SIGKILL } from '../../../src/base/signals.ts'
import { Process } from '../../../src/gen/oci.ts'
import { ociRuntime } from '../../../src/handlers/oci-runtime/client.ts'
import { kernelError } from '../../../src/os/errors.ts'
import { FakeOs } from '../../support/fakes/fake-os.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { isPending } from '../../support/pending.ts'

/** A client of a program that writes `pid` to its pid file; `argv` are its calls. */
function client(kind: 'runc' | 'crun', pid = '42') {
  const os = new FakeOs()
  const { log } = recordingLog()
  const options = { kind, binary: `/usr/bin/${kind}`, root: '/run/rt', containerVsock: 'deny', log } as const
  const runtime = ociRuntime(os, options)
  os.tools.script((argv) => {
    const at = argv.indexOf('--pid-file')
    return at < 0 ? {} : os.files.write(argv[at + 1] ?? '', pid).then(() => ({}))
  })
  return { os, runtime, argv: () => os.tools.calls.map((call) => call.argv.join(' ')) }
}

const CONTAINER = {
  key: 'p7',
  id: 'c1',
  bundle: '/b',
  program: 'sh',
  spec: { Annotations: {}, Linux: undefined, Hooks: undefined },
  streams: { pipes: [3, 4, 5] },
  isMember: async () => true,
} as const

const general = '--root /run/rt/state --log /run/rt/calls/p7/log.json --log-format json'
const generalOfRun = general.replace('p7', 'run-2-0')

describe('ociRuntime', () => {
  it('waits for the orphaned runs of a container, and searches once for those of all', async () => {
    const { os, runtime } = client('runc')
    await os.files.makeDirectories('/run/rt/calls/p7')
    await os.files.put('/proc/self/stat', '9 (node) S 7 1 1 0 -1')
    await os.files.put('/proc/30/stat', '30 (runc) S 7 1 1 0 -1')
    await os.files.put('/proc/30/cmdline', '/usr/bin/runc\0--root\0/run/rt/state\0create\0c2\0')
    const isContained = async () => false
    await runtime.runsEnded({ id: 'c1', isStarting: false }, isContained)
    const second = runtime.runsEnded({ id: 'c2', isStarting: false }, isContained)
    expect(await isPending(second)).toBe(true)
    os.exits.exit(30, { code: 0 })
    await second
    await os.files.put('/proc/31/stat', '31 (runc) S 7 1 1 0 -1')
    await os.files.put('/proc/31/cmdline', '/usr/bin/runc\0--root\0/run/rt/state\0create\0c3\0')
    // This run began after the search, so this agent has started it.
    await runtime.runsEnded({ id: 'c3', isStarting: false }, isContained)
  })

  it('looks for orphaned runs where a folder was left or a start may be under way, and nowhere else', async () => {
    const { os, runtime } = client('runc')
    const isContained = async () => false
    await os.files.put('/proc/self/stat', '9 (node) S 7 1 1 0 -1')
    await os.files.put('/proc/30/stat', '30 (runc) S 7 1 1 0 -1')
    await os.files.put('/proc/30/cmdline', '/usr/bin/runc\0--root\0/run/rt/state\0start\0c1\0')
    await runtime.runsEnded({ id: 'c1', isStarting: false }, isContained)
    await os.files.makeDirectories('/run/rt/calls')
    await runtime.runsEnded({ id: 'c1', isStarting: false }, isContained)
    const starting = runtime.runsEnded({ id: 'c1', isStarting: true }, isContained)
    expect(await isPending(starting)).toBe(true)
    os.exits.exit(30, { code: 0 })
    await starting
  })

  it('gives the orphaned runs of all containers the same 10 s', async () => {
    const { os, runtime } = client('runc')
    const isContained = async () => false
    await os.files.makeDirectories('/run/rt/calls/p7')
    await os.files.put('/proc/self/stat', '9 (node) S 7 1 1 0 -1')
    for (const [pid, id] of [
      [30, 'c1'],
      [31, 'c2'],
    ] as const) {
      await os.files.put(`/proc/${pid}/stat`, `${pid} (runc) S 7 1 1 0 -1`)
      await os.files.put(`/proc/${pid}/cmdline`, `/usr/bin/runc\0--root\0/run/rt/state\0create\0${id}\0`)
      os.system.processes.add(-pid)
    }
    os.system.onKill = (pid) => os.exits.exit(-pid, { signal: SIGKILL })
    const first = runtime.runsEnded({ id: 'c1', isStarting: false }, isContained)
    await expect.poll(() => os.clock.sleeping).toBe(1)
    os.clock.advance(10_000)
    await first
    const second = runtime.runsEnded({ id: 'c2', isStarting: false }, isContained)
    await expect.poll(() => os.clock.sleeping).toBe(1)
    os.clock.advance(0)
    await second
    expect(os.system.signals.map(({ pid }) => pid)).toEqual([-30, -31])
  })

  it('creates a container with pipes as its standard streams', async () => {
    const { os, runtime, argv } = client('runc')
    const outcome = await runtime.create(CONTAINER, neverAborted)
    expect(outcome).toEqual({ kind: 'started', pid: 42, master: undefined })
    expect(argv()).toEqual([`/usr/bin/runc ${general} create --bundle /b --pid-file /run/rt/calls/p7/pid c1`])
    expect(os.tools.calls[0]?.options.stdio).toEqual([3, 4, 5])
    expect(await os.files.list('/run/rt/calls')).toEqual(['p7'])
    await runtime.discardRun('p7')
    expect(await os.files.list('/run/rt/calls')).toEqual([])
  })

  it('adds a process on a terminal, and returns the master', async () => {
    const { os, runtime, argv } = client('crun')
    os.tools.script((words) => {
      os.consoles.connect(words[words.indexOf('--console-socket') + 1] ?? '')
      return undefined
    })
    const { isMember } = CONTAINER
    const process = Process.fromPartial({ Args: ['sh'] })
    const { spec } = CONTAINER
    const heard: string[] = []
    const streams = {
      terminal: { listening: () => void heard.push('socket'), received: () => void heard.push('master') },
    }
    const addition = { key: 'p7', containerId: 'c1', process, spec, streams, cgroup: '', isMember }
    const outcome = await runtime.exec(addition, neverAborted)
    expect(outcome).toMatchObject({ kind: 'started', pid: 42 })
    expect(os.streams.openFds).toContain('master' in outcome ? outcome.master : undefined)
    expect(heard).toEqual(['socket', 'master'])
    const call = '/run/rt/calls/p7'
    expect(argv()).toEqual([
      `/usr/bin/crun ${general} --cgroup-manager cgroupfs exec --detach --process ${call}/input.json --pid-file ${call}/pid --console-socket ${call}/tty c1`,
    ])
    expect(os.consoles.paths).toEqual([])
  })

  it('adds a process to a cgroup below the container’s', async () => {
    const { runtime, argv } = client('runc')
    const process = Process.fromPartial({ Args: ['sh'] })
    const { spec, streams, isMember } = CONTAINER
    const addition = { key: 'p7', containerId: 'c1', process, spec, streams, cgroup: '/init', isMember }
    await runtime.exec(addition, neverAborted)
    expect(argv()[0]).toContain(' --cgroup /init ')
  })

  it('names the program of the container that was not found', async () => {
    const { os, runtime } = client('runc')
    const msg = 'exec: "sh": executable file not found in $PATH'
    os.tools.script((argv) => {
      const log = argv[argv.indexOf('--log') + 1] ?? ''
      return os.files.write(log, JSON.stringify({ level: 'error', msg })).then(() => ({ exitCode: 1 }))
    })
    await expect(runtime.create(CONTAINER, neverAborted)).rejects.toThrow('the file sh was not found')
  })

  it.each(['', 'x', '0', '-1', '1.5'])(
    'returns a half-started process without a pid for the pid file %j',
    async (pid) => {
      const { runtime } = client('runc', pid)
      const outcome = await runtime.create(CONTAINER, neverAborted)
      expect(outcome).toMatchObject({ kind: 'half-started', pid: undefined })
      expect(String('error' in outcome && outcome.error)).toContain(`not a pid: '${pid}'`)
    },
  )

  it('rejects a process outside the container’s cgroup', async () => {
    const { runtime } = client('runc', '1')
    const asked: number[] = []
    const isMember = async (pid: number) => asked.push(pid) === 0
    expect(await runtime.create({ ...CONTAINER, isMember }, neverAborted)).toMatchObject({
      kind: 'half-started',
      pid: undefined,
      error: { code: 'INTERNAL', message: "runc create: process 1 is not in the container's cgroup" },
    })
    expect(asked).toEqual([1])
  })

  it('ends a run that makes a process after five minutes, and says that the process may be there', async () => {
    const { os, runtime } = client('runc')
    const limits: (number | undefined)[] = []
    os.tools.run = async (_argv, options) => {
      limits.push(options?.timeoutMs)
      throw kernelError('run', '/usr/bin/runc', 'ETIMEDOUT')
    }
    expect(await runtime.create(CONTAINER, neverAborted)).toMatchObject({
      kind: 'half-started',
      pid: undefined,
      error: { code: 'DEADLINE_EXCEEDED', message: 'runc create: not finished after 300 s, and killed' },
    })
    expect(limits).toEqual([300_000])
  })

  it('denies AF_VSOCK to runs that make a process, unless the container may have it', async () => {
    const { os, runtime } = client('runc')
    const process = Process.fromPartial({ Args: ['sh'] })
    const allowed = { ...CONTAINER.spec, Annotations: { 'microvm.agent.container_vsock': 'allow' } }
    for (const spec of [CONTAINER.spec, allowed]) {
      await runtime.create({ ...CONTAINER, spec }, neverAborted)
      const { key, streams, isMember } = CONTAINER
      const addition = { key, containerId: 'c1', process, spec, streams, cgroup: '', isMember }
      await runtime.exec(addition, neverAborted)
    }
    await runtime.start('c1', neverAborted)
    const denied = ['vsock', 'io_uring']
    expect(os.tools.calls.map(({ options }) => options.denied)).toEqual([denied, denied, [], [], undefined])
  })

  it.each(['EINVAL', 'ENOSYS'])('makes no container where the kernel has no filters (%s)', async (errno) => {
    const { os, runtime } = client('runc')
    os.tools.run = async () => {
      throw kernelError('start', '/usr/bin/runc', errno)
    }
    await expect(runtime.create(CONTAINER, neverAborted)).rejects.toMatchObject({
      code: 'FAILED_PRECONDITION',
      message: `runc create: AF_VSOCK cannot be denied (seccomp: ${errno}), want a kernel with CONFIG_SECCOMP_FILTER or agent.container_vsock=allow`,
    })
  })

  it('starts a container without files, and reads the log of the run from stderr', async () => {
    const { os, runtime, argv } = client('runc')
    await runtime.start('c1', neverAborted)
    expect(argv()).toEqual(['/usr/bin/runc --root /run/rt/state --log-format json start c1'])
    expect(os.tools.calls[0]?.options).toMatchObject({ dropsStdout: true })
    expect(await os.files.list('/run/rt/calls')).toEqual([])
    const msg = 'container "c1": is paused'
    os.tools.script(() => ({ exitCode: 1, stderr: JSON.stringify({ level: 'error', msg }) }))
    await expect(runtime.start('c1', neverAborted)).rejects.toThrow(`runc start: ${msg}`)
    os.tools.script(() => ({ exitCode: 2, stderr: 'panic: no room' }))
    await expect(runtime.start('c1', neverAborted)).rejects.toThrow('runc start: panic: no room')
  })

  it('names the runtime when it cannot run', async () => {
    const { os, runtime } = client('runc')
    os.tools.script(() => ({ exitCode: 127 }))
    await expect(runtime.create(CONTAINER, neverAborted)).rejects.toThrow('/usr/bin/runc lacks a library')
  })

  it('names the runtime when it is missing', async () => {
    const { os, runtime } = client('runc')
    os.tools.script(() => {
      throw kernelError('start', '/usr/bin/runc', 'ENOENT')
    })
    await expect(runtime.create(CONTAINER, neverAborted)).rejects.toThrow(
      'the OCI runtime /usr/bin/runc cannot be started: it or its loader is missing',
    )
  })

  it('deletes only containers whose state it has', async () => {
    const { os, runtime, argv } = client('runc')
    const spec = { Hooks: undefined }
    const container = { id: 'c1', initPid: 42, cgroupPath: '/c1', spec, clear: async () => {} }
    await runtime.delete(container, 0)
    await os.files.makeDirectories('/run/rt/state/c1')
    await runtime.delete(container, 0)
    expect(argv()).toEqual([`/usr/bin/runc ${generalOfRun} delete c1`])
  })

  it('erases the state of a container that the runtime cannot delete', async () => {
    const { os, runtime } = client('runc')
    await os.files.makeDirectories('/run/rt/state/c1')
    os.tools.script(() => ({ exitCode: 1, stderr: 'no state' }))
    await runtime.erase('c1')
    await runtime.erase('c1')
    expect(await runtime.list()).toEqual([])
  })
})
