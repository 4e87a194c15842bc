import { describe, expect, it } from 'vitest'
import type { AgentArguments } from '../../src/agent/config/arguments.ts'
import { stopAgent, stopRequested } from '../../src/agent/stop.ts'
import { AgentError } from '../../src/base/errors.ts'
import { silentLogger } from '../../src/base/log.ts'
import { FakeOs } from '../support/fakes/fake-os.ts'

const given: AgentArguments = {
  channel: { fd: 3, restarts: 0, storedList: undefined },
  ...{ broker: 5, init: false, configFile: undefined, serverAddress: undefined },
}

function stopping(destroySandbox: () => Promise<void>) {
  const os = new FakeOs()
  const steps: string[] = []
  const transport = {
    port: undefined,
    dropOlder: () => 0,
    stop: async () => {
      steps.push('transport')
    },
  }
  const reason = 'signal' as const
  const closeConsoles = async () => void steps.push('consoles')
  const stopTracing = async () => void steps.push('traces')
  const status = stopAgent({
    ...{ os, log: silentLogger(), given, transport, reason, destroySandbox, closeConsoles, stopTracing },
  })
  return { os, steps, status }
}

describe('the end of an agent that is no guest\u2019s', () => {
  it('begins at a signal', async () => {
    const os = new FakeOs()
    const reason = stopRequested(os, given, new Promise(() => {}))
    os.system.receive('SIGTERM')
    expect(await reason).toBe('signal')
  })

  it('follows the end of the sandbox, the consoles and the connections', async () => {
    const steps: string[] = []
    const { status, steps: later } = stopping(async () => void steps.push('sandbox'))
    expect(await status).toBe(0)
    expect([...steps, ...later]).toEqual(['sandbox', 'consoles', 'transport', 'traces'])
  })

  it('does not need a sandbox', async () => {
    const { status } = stopping(() => Promise.reject(new AgentError('INTERNAL', 'there is none')))
    expect(await status).toBe(0)
  })

  it('follows the second signal when the sandbox does not end', async () => {
    const { os, status } = stopping(() => new Promise(() => {}))
    os.system.receive('SIGTERM')
    expect(await status).toBe(1)
  })
})
