import { spawnSync } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { buildAgentCtl, CTL_INSTALLED } from '../../../src/build/agent-ctl.ts'
import { pinnedNode } from '../../../src/build/project.ts'
import { registerMachine } from '../../../src/client/machines/register.ts'
import { type AgentPod, startPod } from '../../support/host/agent-pod.ts'
import { temporaryFolder } from '../../support/temporary-folder.ts'
import { expectShell, Terminal } from '../../support/terminal.ts'

describe('agent-ctl on a terminal', () => {
  let tool: readonly string[]
  let pod: AgentPod
  let env: Record<string, string>
  beforeAll(async () => {
    tool = [pinnedNode(), join(await buildAgentCtl(), 'installed', CTL_INSTALLED.start)]
    pod = await startPod()
    env = { AGENT_CTL_ADDRESS: `unix://${pod.started.path}` }
    await pod.run('web', ['sh', '-c', 'exec sleep 1000'])
  })
  afterAll(() => pod.stop())

  async function listed(containerId: string): Promise<readonly string[]> {
    const { processes } = await pod.started.introspection.listProcesses({ containerId })
    return processes.map(({ name }) => name)
  }

  it('runs a shell that resizes and lives through Ctrl-C', async () => {
    await expectShell(new Terminal([...tool, 'exec', '-it', 'web', 'sh'], { env }))
  })

  it('leaves a process and its terminal with the detach keys', async () => {
    const terminal = new Terminal([...tool, 'exec', '-it', '--id', 'kept', 'web', 'sh'], { env })
    terminal.type('echo re""ady\n')
    await terminal.shows('ready')
    terminal.type('\x10\x11')
    await terminal.shows('agent-ctl: detached')
    expect(await terminal.exited).toBe(0)
    await pod.agent.signalProcess({ containerId: 'web', execId: 'kept', signal: 9 })
    expect(await pod.agent.waitProcess({ containerId: 'web', execId: 'kept' })).toMatchObject({ status: 137 })
  })

  it.each([
    ['SIGKILL', 'ttrpc'],
    ['SIGKILL', 'grpc'],
    ['SIGHUP', 'ttrpc'],
    ['SIGTERM', 'ttrpc'],
  ])('hangs its shell up when it ends by %s, over %s', async (signal, protocol) => {
    const words = ['exec', '-it', '--id', 'lost', '--protocol', protocol, 'web', 'sh']
    const terminal = new Terminal([...tool, ...words], { env })
    terminal.type('tail -f /bin/false /dev/null\n')
    await terminal.shows('==> /dev/null')
    terminal.kill(signal)
    await terminal.exited
    await expect.poll(() => listed('web')).toEqual(['sleep'])
  })

  it('hangs its shell up when it is killed after the agent has been', async () => {
    const terminal = new Terminal([...tool, 'exec', '-it', 'web', 'sh'], { env })
    await terminal.shows('# ')
    process.kill(pod.started.agentPid(), 'SIGKILL')
    terminal.type('echo al""ive\n')
    await terminal.shows('alive')
    terminal.kill('SIGKILL')
    await expect.poll(() => listed('web')).toEqual(['sleep'])
  })

  it('passes Ctrl-C on once without a terminal for the program, and ends at the second', async () => {
    const terminal = new Terminal(
      [...tool, 'exec', 'web', 'sh', '-c', 'trap "echo caught" INT; echo on; while :; do sleep 0.1; done'],
      { env },
    )
    await terminal.shows('on')
    terminal.type('\x03')
    await terminal.shows('caught')
    terminal.type('\x03')
    expect(await terminal.exited).toBe(130)
  })

  it('reads command lines with completion and history, where Ctrl-C ends the command alone', async () => {
    const HOME = temporaryFolder()
    const terminal = new Terminal([...tool, 'shell'], { env: { ...env, HOME } })
    await terminal.shows('agent-ctl> ')
    terminal.type('capab')
    await terminal.shows('capab')
    terminal.type('\t')
    await terminal.shows('ilities')
    terminal.type(' --missing\n')
    await terminal.shows('THERE')
    await terminal.shows('agent-ctl> ')
    terminal.type('events -f\n')
    await terminal.shows('agent started')
    terminal.type('\x03')
    await terminal.shows('agent-ctl> ')
    terminal.type('exec -it web sh\n')
    await terminal.shows('# ')
    terminal.type('echo in""side; exit\n')
    await terminal.shows('inside')
    await terminal.shows('agent-ctl> ')
    terminal.type('exit\n')
    expect(await terminal.exited).toBe(0)
    const history = readFileSync(join(HOME, '.agent_ctl_history'), 'utf8')
    expect(history.split('\n')).toEqual(['exit', 'exec -it web sh', 'events -f', 'capabilities --missing'])
  })

  it('has bash complete machines and containers', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'agent-ctl'), `#!/bin/sh\nexec ${tool.join(' ')} "$@"\n`, { mode: 0o755 })
    const MICROVM_REGISTRY = join(folder, 'machines')
    registerMachine(MICROVM_REGISTRY, 'ant').publish({ kind: 'unix', path: '/nowhere' })
    registerMachine(MICROVM_REGISTRY, 'bee').publish({ kind: 'unix', path: pod.started.path })
    const bash = new Terminal(['bash', '--norc', '--noprofile'], {
      columns: 200,
      env: { MICROVM_REGISTRY, PATH: `${folder}:${process.env.PATH}`, PS1: 'ready> ' },
    })
    await bash.shows('ready> ')
    bash.type('source <(agent-ctl completion bash)\n')
    await bash.shows('ready> ')
    bash.type('agent-ctl -a m\t')
    await bash.shows('icrovm://')
    bash.type('b\t')
    await bash.shows('ee ')
    bash.type('exec w\t')
    await bash.shows('eb ')
    bash.type('echo in""side\n')
    await bash.shows('inside')
    bash.type('exit\n')
    expect(await bash.exited).toBe(0)
  })

  it('repeats the list of processes until Ctrl-C', async () => {
    const terminal = new Terminal([...tool, 'top', '--seconds', '1'], { env })
    await terminal.shows('sleep')
    await pod.add('web', 'later', ['tail', '-f', '/dev/null'])
    await terminal.shows('tail')
    terminal.type('\x03')
    expect(await terminal.exited).toBe(130)
  })

  it('ends quietly when the reader of its output has gone', () => {
    const words = [...tool, 'man'].join(' ')
    const script = `{ ${words}; ${words}; ${words}; echo $? >&2; } | head -n 1`
    const { stderr, stdout } = spawnSync('sh', ['-c', script], { encoding: 'utf8' })
    expect(stdout).toMatch(/^\.TH AGENT-CTL 1 .*\n$/)
    expect(stderr).toBe('141\n')
  })

  it('works with stdin closed', () => {
    const script = `${[...tool, 'exec', '-i', 'web', 'cat'].join(' ')} <&-`
    const { status, stderr } = spawnSync('sh', ['-c', script], {
      encoding: 'utf8',
      env: { ...process.env, ...env },
    })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
  })
})
