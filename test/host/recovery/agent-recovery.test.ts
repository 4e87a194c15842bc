import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import {
  type AgentPod,
  cgroupsOf,
  inNamespaceOf,
  killAgent,
  killWithState,
  leftoversOf,
  mountPointsOf,
  NOTHING_LEFT,
  startPod,
} from '../../support/host/agent-pod.ts'
import { hostRuntime } from '../../support/host/host-runtimes.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

/** A hook that leaves more orphans to vminit than the agent acknowledges at once. */
const ORPHANS = {
  Path: '/bin/sh',
  Args: ['sh', '-c', 'for i in $(seq 100); do (true &); done'],
  Timeout: 30n,
}

describe('a container whose agent is killed', () => {
  let pod: AgentPod
  beforeAll(async () => {
    pod = await startPod()
  })
  afterAll(() => pod.stop())

  it('continues, with its output, input and exit status', async () => {
    const init = await pod.run('c1', [
      'sh',
      '-c',
      'echo begun; read line; echo "got $line"; read end; exit 7',
    ])
    expect(await init.readUntil('begun\n')).toBe('begun\n')
    const waiting = init.wait()
    await killAgent(pod)
    await init.write('words\n')
    expect(await init.readUntil('words\n')).toBe('got words\n')
    await init.write('\n')
    expect(await waiting).toBe(7)
    await pod.remove('c1')
    expect(leftoversOf(pod.started, 'c1')).toEqual(NOTHING_LEFT)
  })

  it.each([false, true])('loses and repeats no byte, and no exit status (terminal: %s)', async (terminal) => {
    const script = 'i=0; while [ $i -lt 3000 ]; do echo "line $i of many"; i=$((i+1)); done; exit 9'
    const ids = ['a1', 'a2', 'a3']
    const inits = await Promise.all(ids.map((id) => pod.run(id, ['sh', '-c', script], { terminal })))
    let isOver = false
    const killing = (async () => {
      for (let kills = 0; !isOver && kills < 6; kills++) await killAgent(pod)
    })()
    const outputs = await Promise.all(inits.map((init) => init.readAll()))
    const statuses = await Promise.all(inits.map((init) => init.wait()))
    isOver = true
    await killing
    const expected = Array.from({ length: 3000 }, (_, line) => `line ${line} of many`)
    for (const output of outputs) {
      const lines = output.toString().replaceAll('\r', '').split('\n').slice(0, -1)
      expect({
        n: lines.length,
        first: lines[0],
        bad: lines.findIndex((line, index) => line !== expected[index]),
      }).toEqual({ n: 3000, first: expected[0], bad: -1 })
    }
    expect(statuses).toEqual([9, 9, 9])
    for (const id of ids) await pod.remove(id)
    expect(leftoversOf(pod.started, ...ids)).toEqual(NOTHING_LEFT)
  })

  it('reads each byte of a long write once, although agents die in it', async () => {
    const bytes = randomBytes(3 << 20)
    const init = await pod.run('c2', ['sh', '-c', 'cat | sha256sum; exec sleep 1000'])
    const openCalls = async () => (await pod.started.introspection.listCalls({})).calls
    const inInput = async () => (await openCalls()).some(({ step }) => step === 'input')
    for (let kills = 0; kills < 3; kills += 1) {
      const written = init.write(bytes)
      // The pipe is full: nobody reads while the container is paused.
      await pod.agent.pauseContainer({ containerId: 'c2' })
      if (await inInput()) await killAgent(pod)
      await pod.agent.resumeContainer({ containerId: 'c2' })
      await killAgent(pod)
      await written
    }
    await init.closeStdin()
    const hash = createHash('sha256')
      .update(Buffer.concat([bytes, bytes, bytes]))
      .digest('hex')
    expect(await init.readUntil('\n')).toContain(hash)
    expect(pod.started.openFiles().filter((name) => name.includes('memfd:request'))).toEqual([])
    await pod.remove('c2')
  })

  it('has each of its poststart hooks begun once, when the agent dies in one', async () => {
    const begun = join(temporaryFolder(), 'begun')
    const hook = (name: string, then: string) => ({
      Path: '/bin/sh',
      Args: ['sh', '-c', `echo ${name} >> ${begun}; ${then}`],
      Timeout: 10n,
    })
    const Poststart = [hook('first', ':'), hook('second', 'sleep 3'), hook('third', ':')]
    await pod.create('hooked', ['sleep', '100'], { spec: { Hooks: { Poststart } } })
    const started = pod.agent.startContainer({ containerId: 'hooked' })
    await expect.poll(() => existsSync(begun) && readFileSync(begun, 'utf8')).toBe('first\nsecond\n')
    await killAgent(pod)
    await started
    expect(readFileSync(begun, 'utf8')).toBe('first\nsecond\nthird\n')
    await pod.remove('hooked')
    // The second hook continues by itself: it is no longer a child of the agent.
    await expect.poll(() => leftoversOf(pod.started, 'hooked'), { timeout: 30_000 }).toEqual(NOTHING_LEFT)
  })

  it('is created, started, added to and removed whenever the agent dies', async () => {
    let isOver = false
    const killing = (async () => {
      while (!isOver) {
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 300))
        await killAgent(pod)
      }
    })()
    const step = async <T>(what: string, promise: Promise<T>): Promise<T> =>
      promise.catch((error) => {
        throw new Error(`${what}: ${error}`)
      })
    const life = async (name: string) => {
      for (let round = 0; round < 4; round++) {
        const id = `${name}-${round}`
        const init = await step('run', pod.run(id, ['sh', '-c', 'read line; exit 3']))
        const added = await step('add', pod.add(id, 'e', ['sh', '-c', 'echo added; exit 4']))
        expect((await step('read', added.readAll())).toString()).toBe('added\n')
        expect(await step('wait e', added.wait())).toBe(4)
        await step('write', init.write('end\n'))
        expect(await step('wait', init.wait())).toBe(3)
        await step('remove', pod.remove(id))
      }
    }
    const lives = await Promise.allSettled(['x', 'y'].map(life))
    isOver = true
    await killing
    expect(lives.filter(({ status }) => status === 'rejected')).toEqual([])
    expect(leftoversOf(pod.started, 'x-0', 'y-0', 'x-3', 'y-3')).toEqual(NOTHING_LEFT)
  }, 120_000)
})

describe.each(['runc', 'crun'])(
  'a container of %s that awaits its start when the agent is killed',
  (runtime) => {
    let pod: AgentPod
    beforeAll(async () => {
      pod = await startPod({ runtime })
    })
    afterAll(() => pod.stop())

    it('can be started', async () => {
      const init = await pod.create('awaiting', ['sh', '-c', 'exit 7'])
      await killAgent(pod)
      await pod.agent.startContainer({ containerId: 'awaiting' })
      expect(await init.wait()).toBe(7)
      await pod.remove('awaiting')
      expect(leftoversOf(pod.started, 'awaiting')).toEqual(NOTHING_LEFT)
    })

    it('is removed, although it is paused, when the saved state cannot be read', async () => {
      await pod.create('paused', ['true'])
      await pod.agent.pauseContainer({ containerId: 'paused' })
      killWithState(pod.started)
      await pod.started.logged({ msg: 'agent restarted: sandbox lost' })
      await expect.poll(() => leftoversOf(pod.started, 'paused')).toEqual(NOTHING_LEFT)
    })
  },
)

describe("a folder of crun's own beside those of its containers", () => {
  it('is not taken for a container by the agent after one that was killed', async () => {
    const folder = temporaryFolder()
    const [runtime, calls] = [join(folder, 'crun'), join(folder, 'calls')]
    const noting = `#!/bin/sh\necho "$@" >> ${calls}\nexec ${await hostRuntime('crun')} "$@"\n`
    writeFileSync(runtime, noting, { mode: 0o755 })
    const pod = await startPod({ runtime })
    const folders = () => readdirSync(pod.started.inside('/run/microvm-agent/state')).sort()
    try {
      const Seccomp = { DefaultAction: 'SCMP_ACT_ALLOW', Flags: ['SECCOMP_FILTER_FLAG_LOG'] }
      const init = await pod.run('c1', ['sh', '-c', 'read line; exit 7'], { linux: { Seccomp } })
      expect(folders()).toEqual(['.cache', 'c1'])
      await killAgent(pod)
      await pod.started.logged({ msg: 'agent restarted: sandbox restored', containers: '1' })
      expect(folders()).toEqual(['.cache', 'c1'])
      await init.write('end\n')
      expect(await init.wait()).toBe(7)
      killWithState(pod.started)
      await pod.started.logged({ msg: 'agent restarted: sandbox lost', containers: '1' })
      await expect.poll(folders).toEqual(['.cache'])
      expect(leftoversOf(pod.started, 'c1')).toEqual(NOTHING_LEFT)
      expect(readFileSync(calls, 'utf8')).not.toContain('.cache')
      expect(pod.started.log.filter(({ level }) => level === 'ERRO')).toEqual([])
    } finally {
      await pod.stop()
    }
  })
})

describe('a process that is being added when the agent is killed', () => {
  it('has its exit status, also when the next agent is killed after its end', async () => {
    const folder = temporaryFolder()
    const [made, mayEnd, runtime] = [join(folder, 'made'), join(folder, 'may-end'), join(folder, 'runc')]
    // The process exists, but the agent does not know its pid.
    const afterExec = `echo > ${made}; while [ ! -e ${mayEnd} ]; do sleep 0.1; done`
    const program = `#!/bin/sh\n${await hostRuntime('runc')} "$@" || exit\ncase " $* " in *" exec "*) ${afterExec};; esac\n`
    writeFileSync(runtime, program, { mode: 0o755 })
    const pod = await startPod({ runtime })
    try {
      await pod.run('c1', ['sleep', '1000'])
      const adding = pod.add('c1', 'e', ['sh', '-c', 'read line; exit 4'])
      await expect.poll(() => existsSync(made), { timeout: 20_000 }).toBe(true)
      const killed = killAgent(pod)
      writeFileSync(mayEnd, '')
      await killed
      const added = await adding
      await added.write('end\n')
      expect((await added.readAll()).toString()).toBe('')
      await pod.run('orphans', ['sleep', '1000'], { spec: { Hooks: { Poststart: [ORPHANS] } } })
      await killAgent(pod)
      expect(await added.wait()).toBe(4)
    } finally {
      await pod.stop()
    }
  })
})

describe('a container whose creation no call awaits when the agent is killed', () => {
  it('leaves no storage, although its cgroup cannot be removed', async () => {
    const pod = await startPod()
    const folder = temporaryFolder()
    const [begun, mayEnd] = [join(folder, 'begun'), join(folder, 'may-end')]
    const waits = `echo > ${begun}; while [ ! -e ${mayEnd} ]; do sleep 0.1; done`
    const mountPoint = '/run/kata-containers/shared/containers/watchable/volume'
    const request = createContainerRequest('c1', pod.root, ['sleep', '1000'], {
      storages: [{ driver: 'watchable-bind', source: folder, fstype: 'bind', mountPoint, options: ['ro'] }],
      spec: { Hooks: { CreateRuntime: [{ Path: '/bin/sh', Args: ['sh', '-c', waits], Timeout: 30n }] } },
    })
    try {
      const mounts = mountPointsOf(pod.started)
      const own = await pod.started.connect()
      const created = expect(own.agent.createContainer(request)).rejects.toThrow()
      await expect.poll(() => existsSync(begun), { timeout: 20_000 }).toBe(true)
      const cgroups = cgroupsOf('c1', pod.started)
      // A mount point cannot be removed.
      for (const cgroup of cgroups) inNamespaceOf(pod.started, 'mount', '--bind', cgroup, cgroup)
      process.kill(pod.started.agentPid(), 'SIGSTOP')
      own.close()
      await created
      const killed = killAgent(pod)
      writeFileSync(mayEnd, '')
      await killed
      for (const cgroup of cgroups) inNamespaceOf(pod.started, 'umount', cgroup)
      expect(cgroupsOf('c1', pod.started)).toEqual(cgroups)
      expect(mountPointsOf(pod.started)).toEqual(mounts)
      expect(readdirSync(pod.started.inside('/run/microvm-agent/saved/storages'))).toEqual([])
    } finally {
      await pod.stop()
    }
  })
})
