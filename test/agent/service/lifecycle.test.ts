import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { Identity, LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { type RunningServices, runServices } from '../../support/agent/run-services.ts'
import { FakePolicyEngines } from '../../support/fakes/fake-policy-engines.ts'
import { containerRequest, execRequest, sandboxRequest } from '../../support/handlers/machine.ts'
import { write } from '../../support/handlers/stdio-ends.ts'

const SEED = Buffer.alloc(32, 1)

describe.each(['ttrpc', 'grpc'] as const)('Lifecycle over %s', (framing) => {
  let services: RunningServices
  const lifecycle = () => clientFor(LifecycleDefinition, services.connections[framing])
  const agent = () => clientFor(AgentServiceDefinition, services.connections[framing])

  beforeEach(async () => {
    services = await runServices()
  })

  afterEach(() => services.close())

  it('answers Resumed at once, and GetResume when the guest is ready', async () => {
    const { number } = await lifecycle().resumed({ generation: 'a', seed: SEED })
    const told = await lifecycle().getResume({ number, timeoutMs: 60_000 })
    expect(told).toMatchObject({ number: 1n, generation: 'a', state: 'ready', randomness: 'renewed' })
    expect(await lifecycle().resumed({ generation: 'a' })).toEqual({ number })
    const introspection = clientFor(IntrospectionDefinition, services.connections[framing])
    const { events } = await introspection.getEvents({ afterSequence: 0n })
    expect(events.at(-1)).toMatchObject({ ready: { number, generation: 'a' } })
  })

  it('knows no repair before the first', async () => {
    const none = { code: 'NOT_FOUND', message: 'repairs: there was none yet' }
    await expect(lifecycle().getResume({})).rejects.toMatchObject(none)
  })

  it('lists the streams over ports, with what has passed', async () => {
    await agent().createSandbox(sandboxRequest())
    await agent().createContainer(containerRequest('c1'))
    await agent().startContainer({ containerId: 'c1' })
    expect(await lifecycle().listStreams({})).toEqual({ streams: [] })
    const end = services.os.hostSockets.accept(8)
    await agent().execProcess(execRequest('c1', 'e1', {}, { stdoutPort: 8 }))
    write(services.os, services.runtime.last().stdout, 'output')
    await end
    const stream = { containerId: 'c1', execId: 'e1', stream: 'stdout', port: 8 }
    const listed = async () => (await lifecycle().listStreams({})).streams
    expect(await listed()).toMatchObject([{ ...stream, state: 'attached' }])
    await lifecycle().detach({})
    expect(await listed()).toMatchObject([{ ...stream, state: 'detached', total: 6n }])
  })

  it('ends a wait at Detach without taking anything, and takes it after Attach', async () => {
    await agent().createSandbox(sandboxRequest())
    await agent().createContainer(containerRequest('c1'))
    await agent().startContainer({ containerId: 'c1' })
    const waiting = agent().waitProcess({ containerId: 'c1', execId: '' })
    const ended = expect(waiting).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    const introspection = clientFor(IntrospectionDefinition, services.connections[framing])
    const steps = async () => (await introspection.listCalls({})).calls.map(({ step }) => step)
    await expect.poll(steps).toContainEqual(expect.stringContaining('exit'))
    expect(await lifecycle().detach({})).toEqual({ streams: [] })
    await ended
    const refused = agent().waitProcess({ containerId: 'c1', execId: '' })
    await expect(refused).rejects.toMatchObject({ code: 'UNAVAILABLE' })
    await clientFor(HealthDefinition, services.connections[framing]).check({})
    await lifecycle().attach({})
    services.runtime.end(services.runtime.last().pid, { code: 3 })
    expect(await agent().waitProcess({ containerId: 'c1', execId: '' })).toMatchObject({ status: 3 })
  })
})

describe('Lifecycle over a connection that a repair drops', () => {
  it('is asked for its outcome over another one', async () => {
    const services = await runServices({ address: { kind: 'tcp', host: '127.0.0.1', port: 0 } })
    const over = (connection: Parameters<typeof clientFor>[1]) => clientFor(LifecycleDefinition, connection)
    const dropped = await services.transport.dialTtrpc()
    const old = over(dropped)
    const first = await old.resumed({ generation: 'a', seed: SEED })
    // The kernel's word of another restore comes while the caller still has its old connection.
    services.os.clock.advance(11_000)
    services.os.kernelLog.say('random: crng reseeded due to virtual machine fork')
    const late = old.resumed({ generation: 'b', seed: SEED })
    late.catch(() => {})
    await dropped.closed
    const other = over(await services.transport.dialTtrpc())
    const again = await other.resumed({ generation: 'b', seed: SEED })
    expect(await other.getResume({ number: again.number, timeoutMs: 60_000 })).toMatchObject({
      state: 'ready',
    })
    expect(await other.getResume({ number: first.number })).toMatchObject({ generation: 'a', state: 'ready' })
    await services.close()
  })
})

describe('Lifecycle under a policy without rules for it', () => {
  it('lets a guest become ready, and gives it no other identity', async () => {
    const services = await runServices({
      engines: new FakePolicyEngines({ strict: { SetPolicyRequest: () => true } }),
    })
    const { ttrpc } = services.connections
    const [agent, lifecycle] = [
      clientFor(AgentServiceDefinition, ttrpc),
      clientFor(LifecycleDefinition, ttrpc),
    ]
    await agent.setPolicy({ policy: 'strict' })
    const { number } = await lifecycle.resumed({ generation: 'a', seed: SEED })
    expect(await lifecycle.getResume({ number, timeoutMs: 1000 })).toMatchObject({ state: 'ready' })
    await lifecycle.attach({})
    const identity = Identity.fromPartial({ hostname: 'clone' })
    const refused = { code: 'PERMISSION_DENIED' }
    await expect(lifecycle.resumed({ generation: 'b', identity })).rejects.toMatchObject(refused)
    await expect(lifecycle.detach({})).rejects.toMatchObject(refused)
    await expect(lifecycle.listStreams({})).rejects.toMatchObject(refused)
    await services.close()
  })
})
