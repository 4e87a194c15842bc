import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { clientFor } from '../../src/rpc/client.ts'
import { type RunningServices, runServices } from '../support/agent/run-services.ts'
import { containerRequest, sandboxRequest } from '../support/handlers/machine.ts'

describe('the metrics of containers', () => {
  let services: RunningServices
  const agent = () => clientFor(AgentServiceDefinition, services.connections.ttrpc)

  beforeEach(async () => {
    services = await runServices()
    await agent().createSandbox(sandboxRequest())
  })
  afterEach(() => services.close())

  it('cover the first 256 containers, and count the others', async () => {
    const ids = Array.from({ length: 260 }, (_, number) => `c${number}`)
    for (const id of ids) await agent().createContainer(containerRequest(id))
    const { metrics } = await agent().getMetrics({})
    expect(labelsIn(metrics)).toEqual(ids.slice(0, 256))
    expect(metrics).toContain('\nmicrovm_agent_containers{state="created"} 260\n')
    expect(metrics).toContain('\nmicrovm_agent_containers_without_series 4\n')

    for (const containerId of ids.slice(0, 10)) await agent().removeContainer({ containerId })
    const { metrics: after } = await agent().getMetrics({})
    expect(labelsIn(after)).toEqual(ids.slice(10))
    expect(after).toContain('\nmicrovm_agent_containers_without_series 0\n')
  })
})

function labelsIn(metrics: string): (string | undefined)[] {
  return [...metrics.matchAll(/^microvm_container_oom_kills_total\{container="(.+)"\}/gm)].map(([, id]) => id)
}
