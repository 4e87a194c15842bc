import { describe, expect, it } from 'vitest'
import { neverAborted } from '../../src/base/abort.ts'
import { AgentError } from '../../src/base/errors.ts'
import type { Os } from '../../src/os/os.ts'
import { ERRNOS } from '../fuzz/mortal-os.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'
import {
  containerRequest,
  execRequest,
  type Machine,
  machine,
  machineWithSandbox,
  remains,
  sandboxRequest,
} from '../support/handlers/machine.ts'
import { type Faults, faultyOs } from './faults.ts'

/** `faults` makes the machine's calls, and its changes of the saved state, fail. */
async function faultyMachine(prepare: (wrap: (os: Os) => Os, os: FakeOs) => Promise<Machine>) {
  const os = new FakeOs()
  const { os: wrapped, faults } = faultyOs(os)
  const made = await prepare(() => wrapped, os)
  made.state.beforeChange = (path) => faults.step(`state ${path}`)
  return { made, faults }
}

/** Permanent folders of the agent, and scratch files of a call whose removal fails. */
const OWN_FOLDERS = /^\/run\/(kata-containers|sandbox-ns|microvm-agent\/runtime(\/(state|calls(\/.*)?))?)$/

async function lasting(made: Machine) {
  const { files, ...others } = await remains(made)
  return { ...others, files: files.filter((path) => !OWN_FOLDERS.test(path)) }
}

/** Only the runtime knows the pid of an added process; without it the process lives until the container is removed. */
const LOST_PID = /^scratch\.readText .*\/pid$/

interface Scenario {
  readonly prepare: (wrap: (os: Os) => Os, os: FakeOs) => Promise<Machine>
  readonly call: (made: Machine, signal: AbortSignal) => Promise<void>
}

const RICH = {
  OCI: {
    Root: { Path: '/images/root' },
    Process: { Args: ['sh'], Capabilities: {} },
    Linux: { Sysctl: { 'net.core.somaxconn': '9' }, Devices: [{ Path: '/dev/null', Type: 'c' }] },
  },
  storages: [{ mountPoint: '/run/kata-containers/c2/data' }],
}

const TERMINAL = { ...RICH, OCI: { ...RICH.OCI, Process: { ...RICH.OCI.Process, Terminal: true } } }

const PORTS = { stdinPort: 7, stdoutPort: 8, stderrPort: 9 }

function withPorts(prepare: Scenario['prepare']): Scenario['prepare'] {
  return (wrap, os) => {
    for (const port of Object.values(PORTS)) os.hostSockets.serve(port)
    return prepare(wrap, os)
  }
}

async function withContainer(wrap: (os: Os) => Os, os: FakeOs): Promise<Machine> {
  const made = await machineWithSandbox({ wrap, os })
  await made.handlers.createContainer(containerRequest('c1'), neverAborted)
  return made
}

const SCENARIOS: Readonly<Record<string, Scenario>> = {
  CreateSandbox: {
    prepare: (wrap, os) => machine({ wrap, os }),
    call: ({ handlers }, signal) =>
      handlers.createSandbox(
        sandboxRequest({
          dns: ['nameserver 1.1.1.1'],
          kernelModules: [{ name: 'overlay' }],
          storages: [{ mountPoint: '/run/kata-containers/shm' }],
        }),
        signal,
      ),
  },
  CreateContainer: {
    prepare: (wrap, os) => machineWithSandbox({ wrap, os }),
    call: ({ handlers }, signal) => handlers.createContainer(containerRequest('c2', {}, RICH), signal),
  },
  'CreateContainer with a terminal': {
    prepare: (wrap, os) => machineWithSandbox({ wrap, os }),
    call: ({ handlers }, signal) => handlers.createContainer(containerRequest('c2', {}, TERMINAL), signal),
  },
  'CreateContainer with ports': {
    prepare: withPorts((wrap, os) => machineWithSandbox({ wrap, os })),
    call: ({ handlers }, signal) =>
      handlers.createContainer(containerRequest('c2', {}, { ...RICH, ...PORTS }), signal),
  },
  'CreateContainer with a terminal and ports': {
    prepare: withPorts((wrap, os) => machineWithSandbox({ wrap, os })),
    call: ({ handlers }, signal) =>
      handlers.createContainer(containerRequest('c2', {}, { ...TERMINAL, ...PORTS, stdoutPort: 7 }), signal),
  },
  'ExecProcess with ports': {
    prepare: withPorts(withContainer),
    call: ({ handlers }, signal) => handlers.execProcess(execRequest('c1', 'e1', {}, PORTS), signal),
  },
  ExecProcess: {
    prepare: withContainer,
    call: ({ handlers }, signal) => handlers.execProcess(execRequest('c1', 'e1'), signal),
  },
  'ExecProcess with a terminal': {
    prepare: withContainer,
    call: ({ handlers }, signal) => handlers.execProcess(execRequest('c1', 'e1', { Terminal: true }), signal),
  },
}

async function stepsOf(scenario: Scenario): Promise<number> {
  const { made, faults } = await faultyMachine(scenario.prepare)
  const before = faults.count
  await scenario.call(made, neverAborted)
  return faults.count - before
}

async function strikeAt(scenario: Scenario, step: number, strike: Faults['strike'], signal: AbortSignal) {
  const { made, faults } = await faultyMachine(scenario.prepare)
  const before = await lasting(made)
  faults.at = faults.count + step
  let where = ''
  faults.strike = (what) => {
    where = what
    strike(what)
  }
  const outcome = await scenario.call(made, signal).then(
    () => 'succeeded',
    (error: unknown) => error,
  )
  return { made, before, where, outcome }
}

describe.each(Object.entries(SCENARIOS))('%s', (_name, scenario) => {
  it('leaves nothing behind, whichever step fails, and can be repeated', async () => {
    const steps = await stepsOf(scenario)
    expect(steps).toBeGreaterThan(5)
    for (let step = 1; step <= steps; step++) {
      const errno = ERRNOS[step % ERRNOS.length] ?? 'EIO'
      const fault = new AgentError('INTERNAL', `a fault of the test: ${errno}`, { errno })
      const strike = () => {
        throw fault
      }
      const { made, before, where, outcome } = await strikeAt(scenario, step, strike, neverAborted)
      const isExec = made.runtime.calls.includes('exec')
      if (outcome === 'succeeded' || (isExec && LOST_PID.test(where))) continue
      expect(await lasting(made), `fault at ${where}`).toEqual(before)
      await scenario.call(made, neverAborted)
    }
  })

  it('leaves nothing behind, whenever the call is cancelled', async () => {
    const steps = await stepsOf(scenario)
    for (let step = 1; step <= steps; step++) {
      const caller = new AbortController()
      const reason = new AgentError('CANCELLED', 'the client cancelled the call')
      const strike = () => caller.abort(reason)
      const { made, before, where, outcome } = await strikeAt(scenario, step, strike, caller.signal)
      // Only the call's final record is missing, or the files of a run are left after it.
      if (outcome === 'succeeded' && /^(state |scratch.removeTree .*[/]calls[/])/.test(where)) continue
      expect(outcome, `cancelled at ${where}`).toBe(reason)
      expect(await lasting(made), `cancelled at ${where}`).toEqual(before)
    }
  })
})
