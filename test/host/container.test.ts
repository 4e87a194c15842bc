import { execFileSync } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SIGKILL, SIGTERM } from '../../src/base/signals.ts'
import { type AgentProcess, startAgent } from '../support/host/agent-process.ts'
import { busyboxRoot } from '../support/host/busybox-root.ts'
import { container, exec, RemoteProcess } from '../support/host/container-requests.ts'

let folder: string
let root: string
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'containers-'))
  root = busyboxRoot(folder)
})
afterAll(() => rmSync(folder, { recursive: true, force: true }))

/** A started container. */
async function run(
  agent: AgentProcess['agent'],
  id: string,
  args: readonly string[],
): Promise<RemoteProcess> {
  await agent.createContainer(container(id, root, args))
  await agent.startContainer({ containerId: id })
  return new RemoteProcess(agent, id)
}

/** A process added to a container. */
async function add(
  agent: AgentProcess['agent'],
  id: string,
  execId: string,
  args: readonly string[],
  terminal = false,
): Promise<RemoteProcess> {
  await agent.execProcess(exec(id, execId, args, { terminal }))
  return new RemoteProcess(agent, id, execId)
}

/** Cgroups of a container that exist on this machine. */
function cgroupsOf(id: string): string[] {
  return readdirSync('/sys/fs/cgroup').filter((name) => existsSync(`/sys/fs/cgroup/${name}/${id}`))
}

function mountsOf(started: AgentProcess, text: string): string[] {
  const mounts = readFileSync(`/proc/${started.vminitPid}/mountinfo`, 'utf8').split('\n')
  return mounts.filter((line) => line.includes(text))
}

describe.each(['runc', 'crun'])('containers made by %s', (runtime) => {
  let started: AgentProcess
  let agent: AgentProcess['agent']
  beforeAll(async () => {
    const config = join(folder, `${runtime}.toml`)
    writeFileSync(config, `runtime = "${runtime}"\n`)
    started = await startAgent({ args: ['--config', config], withoutHybridCgroups: runtime === 'crun' })
    agent = started.agent
    await agent.createSandbox({ sandboxId: 'pod', hostname: 'podname' })
  })
  afterAll(() => started.stop())

  it('keep output and errors apart and give their status', async () => {
    const init = await run(agent, 'streams', ['sh', '-c', 'hostname; echo err >&2; exit 7'])
    expect((await init.readAll('stdout')).toString()).toBe('podname\n')
    expect((await init.readAll('stderr')).toString()).toBe('err\n')
    expect(await init.wait()).toBe(7)
    await agent.removeContainer({ containerId: 'streams' })
    expect(cgroupsOf('streams')).toEqual([])
    expect(mountsOf(started, '/streams/')).toEqual([])
    expect(existsSync(started.inside('/run/kata-containers/streams'))).toBe(false)
  })

  it('get every byte of their input, and its end', async () => {
    const bytes = randomBytes(3_000_000)
    const init = await run(agent, 'input', ['sha256sum'])
    for (let at = 0; at < bytes.length; at += 1_000_000) await init.write(bytes.subarray(at, at + 1_000_000))
    await init.closeStdin()
    const digest = createHash('sha256').update(bytes).digest('hex')
    expect((await init.readAll()).toString()).toBe(`${digest}  -\n`)
    expect(await init.wait()).toBe(0)
    await agent.removeContainer({ containerId: 'input' })
  })

  it('lose nothing of what was written before the end', async () => {
    const init = await run(agent, 'output', ['sh', '-c', 'head -c 5000000 /dev/zero | tr "\\0" x'])
    expect(await init.readAll()).toHaveLength(5_000_000)
    await agent.removeContainer({ containerId: 'output' })
  })

  it('do not inherit the agent’s limits, nor do processes added to them', async () => {
    const look = 'ulimit -Hn; cat /proc/self/oom_score_adj'
    const init = await run(agent, 'limits', ['sh', '-c', `ulimit -n; ${look}; echo end; sleep 1000`])
    const [soft, hard, score] = (await init.readUntil('end')).split('\n')
    expect([soft, score]).toEqual(['1024', '0'])
    expect(Number(hard)).toBeLessThanOrEqual(524_288)
    // Not the soft limit: runc 1.1, built with Go 1.19, raises that of an added process to its hard one.
    const added = await add(agent, 'limits', 'e1', ['sh', '-c', look])
    expect((await added.readAll()).toString()).toBe(`${hard}\n0\n`)
    await agent.removeContainer({ containerId: 'limits' })
  })

  it('serve terminals: size, resize, Ctrl-C', async () => {
    await run(agent, 'terminal', ['sleep', '1000'])
    const shell = await add(
      agent,
      'terminal',
      'sh',
      ['sh', '-c', 'stty size; trap "stty size; exit 4" INT; cat'],
      true,
    )
    expect(await shell.readUntil('\n')).toBe('33 77\r\n')
    await shell.resize(40, 100)
    await shell.write('echoed\n')
    await shell.readUntil('echoed\r\nechoed\r\n')
    await shell.write('\x03')
    expect(await shell.readUntil('40 100')).toContain('40 100')
    await shell.readAll()
    expect(await shell.wait()).toBe(4)
    await agent.removeContainer({ containerId: 'terminal' })
  })

  it('do not keep a reader waiting for a grandchild that holds the pipe', async () => {
    await run(agent, 'holder', ['sleep', '1000'])
    const added = await add(agent, 'holder', 'e1', ['sh', '-c', 'sleep 1000 & echo done'])
    expect((await added.readAll()).toString()).toBe('done\n')
    expect(await added.wait()).toBe(0)
    await agent.removeContainer({ containerId: 'holder' })
  })

  it('end by SIGTERM whether they handle it or not', async () => {
    const deaf = await run(agent, 'deaf', ['sleep', '1000'])
    await deaf.signal(SIGTERM)
    expect(await deaf.wait()).toBe(128 + SIGKILL)
    const polite = await run(agent, 'polite', [
      'sh',
      '-c',
      'trap "exit 5" TERM; echo ready; while :; do sleep 0.1; done',
    ])
    await polite.readUntil('ready')
    await polite.signal(SIGTERM)
    expect(await polite.wait()).toBe(5)
    for (const containerId of ['deaf', 'polite']) await agent.removeContainer({ containerId })
  })

  it('can be killed before they are started', async () => {
    await agent.createContainer(container('parked', root, ['true']))
    const init = new RemoteProcess(agent, 'parked')
    const status = init.wait()
    await init.signal(SIGTERM)
    expect(await status).toBe(128 + SIGKILL)
    await agent.removeContainer({ containerId: 'parked' })
  })

  it('are removed while calls are pending and daemons run', async () => {
    const init = await run(agent, 'busy', ['sh', '-c', '(sleep 1000 &) ; sleep 1000'])
    const added = await add(agent, 'busy', 'e1', ['sleep', '1000'])
    const pending = [init.wait(), added.wait()]
    const reading = added.read()
    await agent.removeContainer({ containerId: 'busy' })
    expect(await Promise.all(pending)).toEqual([137, 137])
    expect(await reading).toHaveLength(0)
    expect(cgroupsOf('busy')).toEqual([])
  })

  it('say which program was not found, at creation and when one is added', async () => {
    await expect(agent.createContainer(container('missing', root, ['nosuch']))).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringContaining('the file nosuch was not found'),
    })
    expect(cgroupsOf('missing')).toEqual([])
    expect(mountsOf(started, '/missing/')).toEqual([])
    await run(agent, 'missing', ['sleep', '1000'])
    await expect(agent.execProcess(exec('missing', 'e1', ['/bin/nosuch']))).rejects.toMatchObject({
      message: expect.stringContaining('the file /bin/nosuch was not found'),
    })
    await agent.removeContainer({ containerId: 'missing' })
  })

  it('leave nothing behind when their creation runs out of time', async () => {
    for (const timeoutMs of [1, 3, 6, 9, 12, 15, 20]) {
      const request = container('hasty', root, ['sleep', '1000'])
      await agent.createContainer(request, { timeoutMs }).catch(() => {})
      // Waits until the creation is undone, or removes what was made in time.
      await agent.removeContainer({ containerId: 'hasty' }).catch(() => {})
      expect(existsSync(started.inside('/run/kata-containers/hasty'))).toBe(false)
      expect(cgroupsOf('hasty')).toEqual([])
      expect(mountsOf(started, '/hasty/')).toEqual([])
    }
    await run(agent, 'hasty', ['true'])
    await agent.removeContainer({ containerId: 'hasty' })
  })

  it('take many processes at once', async () => {
    await run(agent, 'many', ['sleep', '1000'])
    const statuses = Array.from({ length: 20 }, async (_, number) => {
      const added = await add(agent, 'many', `e/${number}`, ['sh', '-c', `echo ${number}; exit ${number}`])
      expect((await added.readAll()).toString()).toBe(`${number}\n`)
      return added.wait()
    })
    expect(await Promise.all(statuses)).toEqual(Array.from({ length: 20 }, (_, number) => number))
    await agent.removeContainer({ containerId: 'many' })
  })
})

describe('a sandbox on a real kernel', () => {
  it('shares the pid namespace of its first container, and is taken away whole', async () => {
    const started = await startAgent()
    try {
      const { agent } = started
      await agent.createSandbox({ sandboxId: 'pod', hostname: '' })
      const shared = { sandboxPidns: true }
      await agent.createContainer(container('first', root, ['sleep', '1234'], shared))
      await agent.startContainer({ containerId: 'first' })
      await agent.createContainer(container('second', root, ['ps'], shared))
      await agent.startContainer({ containerId: 'second' })
      expect((await new RemoteProcess(agent, 'second').readAll()).toString()).toContain('sleep 1234')
      await agent.destroySandbox({})
      expect(mountsOf(started, '/run/')).toEqual([])
      for (const id of ['first', 'second']) expect(cgroupsOf(id)).toEqual([])
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

  it('is lost with its agent: the next one clears it away and says so until CreateSandbox', async () => {
    const started = await startAgent()
    try {
      await started.agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
      await run(started.agent, 'orphaned', ['sleep', '1000'])
      process.kill(started.agentPid(), 'SIGKILL')
      await started.logged({ msg: 'the agent was restarted: its sandbox is lost' })
      const { agent, close } = await started.connect()
      const init = new RemoteProcess(agent, 'orphaned')
      await expect(init.wait()).rejects.toMatchObject({ message: 'Dead agent: restarted' })
      expect(cgroupsOf('orphaned')).toEqual([])
      await agent.createSandbox({ sandboxId: 'pod', hostname: 'h' })
      const again = await run(agent, 'orphaned', ['echo', 'back'])
      expect((await again.readAll()).toString()).toBe('back\n')
      await agent.removeContainer({ containerId: 'orphaned' })
      close()
    } finally {
      await started.stop()
    }
  })
})
