import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { STATE_FOLDER } from '../../../src/agent/boot/state-folder.ts'
import { SIGKILL, SIGTERM } from '../../../src/base/signals.ts'
import { busyboxRoot } from '../../support/containers/busybox-root.ts'
import { createContainerRequest } from '../../support/containers/container-requests.ts'
import { type Pod, podOf, RemoteProcess } from '../../support/containers/pod.ts'
import { cgroupsOf, killWithState } from '../../support/host/agent-pod.ts'
import { type AgentProcess, startAgent } from '../../support/host/agent-process.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'

let folder: string
let root: string
beforeAll(() => {
  folder = temporaryFolder()
  root = busyboxRoot(folder)
})

function mountsOf(started: AgentProcess, text: string): string[] {
  const mounts = readFileSync(`/proc/${started.vminitPid}/mountinfo`, 'utf8').split('\n')
  return mounts.filter((line) => line.includes(text) && !line.includes(STATE_FOLDER))
}

describe.each(['runc', 'crun'])('containers made by %s', (runtime) => {
  let started: AgentProcess
  let pod: Pod
  beforeAll(async () => {
    started = await startAgent({ runtime })
    await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
    pod = podOf(started.agent, root)
  })
  afterAll(() => started.stop())

  it('keep stdout and stderr apart and return their exit status', async () => {
    const init = await pod.run('streams', ['sh', '-c', 'hostname; echo err >&2; exit 7'])
    expect((await init.readAll('stdout')).toString()).toBe('podname\n')
    expect((await init.readAll('stderr')).toString()).toBe('err\n')
    expect(await init.wait()).toBe(7)
    await pod.remove('streams')
    expect(cgroupsOf('streams', started)).toEqual([])
    expect(mountsOf(started, '/streams/')).toEqual([])
    expect(existsSync(started.inside('/run/kata-containers/streams'))).toBe(false)
  })

  it('get every byte of their input, and its end', async () => {
    const bytes = randomBytes(3_000_000)
    const init = await pod.run('input', ['sha256sum'])
    for (let at = 0; at < bytes.length; at += 1_000_000) await init.write(bytes.subarray(at, at + 1_000_000))
    await init.closeStdin()
    const digest = createHash('sha256').update(bytes).digest('hex')
    expect((await init.readAll()).toString()).toBe(`${digest}  -\n`)
    expect(await init.wait()).toBe(0)
    await pod.remove('input')
  })

  it('lose nothing of what was written before the end', async () => {
    const init = await pod.run('output', ['sh', '-c', 'head -c 5000000 /dev/zero | tr "\\0" x'])
    expect(await init.readAll()).toHaveLength(5_000_000)
    await pod.remove('output')
  })

  it('do not inherit the agent’s oom_score_adj, but its limit of open files, as processes added to them', async () => {
    const look = 'ulimit -Hn; cat /proc/self/oom_score_adj'
    const init = await pod.run('limits', ['sh', '-c', `ulimit -n; ${look}; echo end; sleep 1000`])
    const [soft, hard, score] = (await init.readUntil('end')).split('\n')
    const limits = readFileSync(`/proc/${started.agentPid()}/limits`, 'utf8')
    expect(`${soft} ${hard}`).toBe(/^Max open files +(\d+) +(\d+)/m.exec(limits)?.slice(1).join(' '))
    expect(score).toBe('0')
    // Not the soft limit: runc 1.1, built with Go 1.19, raises the soft limit of an added process to its hard one.
    const added = await pod.add('limits', 'e1', ['sh', '-c', look])
    expect((await added.readAll()).toString()).toBe(`${hard}\n0\n`)
    await pod.remove('limits')
  })

  it('start after their startContainer hooks, of which one is missing and one fails', async () => {
    const hook = (Path: string, script: string) => ({ Path, Args: ['sh', '-c', script], Env: ['PATH=/bin'] })
    const StartContainer = [
      hook('/bin/sh', 'echo one > /tmp/hooked'),
      hook('/bin/nosuch', ''),
      hook('/bin/sh', 'exit 3'),
      hook('/bin/sh', 'echo two >> /tmp/hooked'),
    ]
    expect(await pod.output('hooked', 'cat /tmp/hooked', { spec: { Hooks: { StartContainer } } })).toBe(
      'one\ntwo\n',
    )
    const failed = { msg: 'startContainer hook failed', containerId: 'hooked' }
    await started.logged({ ...failed, hook: '/bin/nosuch' })
    await started.logged({ ...failed, hook: '/bin/sh', error: 'exit status 3: ' })
  })

  it('serve terminals: size, resize, Ctrl-C', async () => {
    await pod.run('terminal', ['sleep', '1000'])
    // crun sets the size after the process has started; until then stty prints nothing, and may end with 0.
    const script = 'until stty size | grep . ; do :; done 2>/dev/null; trap "stty size; exit 4" INT; cat'
    const shell = await pod.add('terminal', 'sh', ['sh', '-c', script], { terminal: true })
    expect(await shell.readUntil('\n')).toBe('33 77\r\n')
    await shell.resize(40, 100)
    await shell.write('echoed\n')
    await shell.readUntil('echoed\r\nechoed\r\n')
    await shell.write('\x03')
    expect(await shell.readUntil('40 100')).toContain('40 100')
    await shell.readAll()
    expect(await shell.wait()).toBe(4)
    await pod.remove('terminal')
  })

  it('do not keep a reader waiting for a grandchild that holds the pipe', async () => {
    await pod.run('holder', ['sleep', '1000'])
    const added = await pod.add('holder', 'e1', ['sh', '-c', 'sleep 1000 & echo done'])
    expect((await added.readAll()).toString()).toBe('done\n')
    expect(await added.wait()).toBe(0)
    await pod.remove('holder')
  })

  it('end by SIGTERM whether they handle it or not', async () => {
    const deaf = await pod.run('deaf', ['sleep', '1000'])
    await deaf.signal(SIGTERM)
    expect(await deaf.wait()).toBe(128 + SIGKILL)
    const polite = await pod.run('polite', [
      'sh',
      '-c',
      'trap "exit 5" TERM; echo ready; while :; do sleep 0.1; done',
    ])
    await polite.readUntil('ready')
    await polite.signal(SIGTERM)
    expect(await polite.wait()).toBe(5)
    for (const id of ['deaf', 'polite']) await pod.remove(id)
  })

  it('can be killed before they are started', async () => {
    const init = await pod.create('unstarted', ['true'])
    const status = init.wait()
    await init.signal(SIGTERM)
    expect(await status).toBe(128 + SIGKILL)
    await pod.remove('unstarted')
  })

  it('are removed while calls are pending and daemons run', async () => {
    const init = await pod.run('busy', ['sh', '-c', '(sleep 1000 &) ; sleep 1000'])
    const added = await pod.add('busy', 'e1', ['sleep', '1000'])
    const pending = [init.wait(), added.wait()]
    const reading = added.read()
    await pod.remove('busy')
    expect(await Promise.all(pending)).toEqual([137, 137])
    expect(await reading).toHaveLength(0)
    expect(cgroupsOf('busy', started)).toEqual([])
  })

  it('say which program was not found, at creation and when one is added', async () => {
    await expect(pod.create('missing', ['nosuch'])).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('the file nosuch was not found'),
    })
    expect(cgroupsOf('missing', started)).toEqual([])
    expect(mountsOf(started, '/missing/')).toEqual([])
    await pod.run('missing', ['sleep', '1000'])
    await expect(pod.add('missing', 'e1', ['/bin/nosuch'])).rejects.toMatchObject({
      message: expect.stringContaining('the file /bin/nosuch was not found'),
    })
    await pod.remove('missing')
  })

  it('leave nothing behind when their creation runs out of time', async () => {
    for (const timeoutMs of [1, 3, 6, 9, 12, 15, 20]) {
      const request = createContainerRequest('hasty', root, ['sleep', '1000'])
      await pod.agent.createContainer(request, { timeoutMs }).catch(() => {})
      // The removal waits until the creation is undone, or removes a container that was created in time.
      await pod.remove('hasty').catch(() => {})
      expect(existsSync(started.inside('/run/kata-containers/hasty'))).toBe(false)
      expect(cgroupsOf('hasty', started)).toEqual([])
      expect(mountsOf(started, '/hasty/')).toEqual([])
    }
    await pod.run('hasty', ['true'])
    await pod.remove('hasty')
  })

  it('take many processes at once', async () => {
    await pod.run('many', ['sleep', '1000'])
    const statuses = Array.from({ length: 20 }, async (_, number) => {
      const added = await pod.add('many', `e/${number}`, ['sh', '-c', `echo ${number}; exit ${number}`])
      expect((await added.readAll()).toString()).toBe(`${number}\n`)
      return added.wait()
    })
    expect(await Promise.all(statuses)).toEqual(Array.from({ length: 20 }, (_, number) => number))
    await pod.remove('many')
  })
})

describe('a sandbox on a real kernel', () => {
  it('shares the pid namespace of its first container, and is removed without a trace', async () => {
    const started = await startAgent()
    try {
      const { agent } = started
      await agent.createSandbox({ sandboxId: 'pod', hostname: '' })
      const pod = podOf(agent, root)
      await pod.run('first', ['sleep', '1234'], { sandboxPidns: true })
      const second = await pod.run('second', ['ps'], { sandboxPidns: true })
      expect((await second.readAll()).toString()).toContain('sleep 1234')
      await agent.destroySandbox({})
      expect(mountsOf(started, '/run/')).toEqual([])
      for (const id of ['first', 'second']) expect(cgroupsOf(id, started)).toEqual([])
    } finally {
      await started.stop()
    }
  })

  it('never deletes across a mount: what is mounted below its folder keeps its files', async () => {
    const started = await startAgent()
    const keep = mkdtempSync(join(folder, 'keep-'))
    const inNamespace = (...argv: readonly string[]) =>
      execFileSync('nsenter', ['-t', String(started.vminitPid), '-m', ...argv])
    try {
      inNamespace('sh', '-c', `echo kept > ${keep}/file`)
      const below = '/run/kata-containers/a'
      inNamespace('mkdir', '-p', `${below}/tmpfs`, `${below}/bound`)
      inNamespace('mount', '-t', 'tmpfs', 'tmpfs', `${below}/tmpfs`)
      inNamespace(
        'sh',
        '-c',
        `touch ${below}/tmpfs/target && mount --bind ${keep}/file ${below}/tmpfs/target`,
      )
      inNamespace('mount', '--bind', keep, `${below}/bound`)
      inNamespace('ln', '-s', keep, `${below}/link`)
      await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
      expect(readFileSync(join(keep, 'file'), 'utf8')).toBe('kept\n')
      expect(readdirSync(started.inside('/run/kata-containers'))).toEqual([])
    } finally {
      await started.stop()
    }
  })

  it('is lost with its agent whose state cannot be read: the next one says so until CreateSandbox', async () => {
    const started = await startAgent()
    try {
      await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
      await podOf(started.agent, root).run('orphaned', ['sleep', '1000'])
      killWithState(started)
      await started.logged({ msg: 'agent restarted: sandbox lost' })
      const { agent, close } = await started.connect()
      const init = new RemoteProcess(agent, 'orphaned')
      await expect(init.wait()).rejects.toMatchObject({ message: 'Dead agent: restarted' })
      expect(cgroupsOf('orphaned', started)).toEqual([])
      await agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
      const again = await podOf(agent, root).run('orphaned', ['echo', 'back'])
      expect((await again.readAll()).toString()).toBe('back\n')
      await agent.removeContainer({ containerId: 'orphaned' })
      close()
    } finally {
      await started.stop()
    }
  })
})
