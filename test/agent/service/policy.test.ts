import { connect } from 'node:net'
import { afterEach, beforeEach, describe, expect, it } from 'vitest'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { HealthDefinition as StandardHealth } from '../../../src/gen/grpc/health/v1/health.ts'
import { ServerReflectionResponse } from '../../../src/gen/grpc/reflection/v1/reflection.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { PolicyError } from '../../../src/os/policy/policy-engine.ts'
import { clientFor } from '../../../src/rpc/client.ts'
import { ttrpcClient } from '../../../src/rpc/ttrpc/client.ts'
import { type RunningServices, runServices } from '../../support/agent/run-services.ts'
import { FakePolicyEngines, type RuleContext } from '../../support/fakes/fake-policy-engines.ts'
import { recordingLog } from '../../support/fakes/recording-log.ts'
import { turns } from '../../support/rpc/fake-methods.ts'
import { grpcClient } from '../../support/rpc/grpc-client.ts'

const yes = () => true
const no = () => false

function once({ input, data }: RuleContext) {
  const path = String(input.path)
  const ops = [{ op: 'add', path: `/pstate/${path.slice(1)}`, value: true }]
  return Object.hasOwn(data.pstate, path.slice(1)) ? false : { allowed: true, ops }
}

const answering = (value: unknown) => ({ SetPolicyRequest: yes, AddSwapPathRequest: () => value })
const patching = (...ops: readonly unknown[]) => answering({ allowed: true, ops })

const POLICIES = {
  'deny swap by input.path': {
    SetPolicyRequest: yes,
    GetIPTablesRequest: yes,
    AddSwapPathRequest: (context: RuleContext) => {
      context.print('no swap:')
      context.print(String(context.input.path))
      return false
    },
  },
  'allow all': new Proxy(
    {},
    { get: (_policy, rule) => (rule === 'AllowRequestsFailingPolicy' ? undefined : yes) },
  ),
  'each input.path once': { SetPolicyRequest: yes, AddSwapPathRequest: once },
  'nothing, not even another policy': { SetPolicyRequest: no },
  'lets all pass': { AllowRequestsFailingPolicy: yes, AddSwapPathRequest: no },
  'output by input.container_id and input.len': {
    ReadStreamRequest: ({ input }: RuleContext) => input.container_id === 'c1' && input.len === 7,
  },
  'our own services': { GetVersionRequest: yes, ServerReflectionRequest: yes, HealthCheckRequest: yes },
  'no rules': {},
  'a number': answering(7),
  'a text': answering('true'),
  null: answering(null),
  'an array': answering([true]),
  'an object without allowed': answering({ ops: [] }),
  'an object with a text in allowed': answering({ allowed: 'true' }),
  'ops that are no array': answering({ allowed: true, ops: {} }),
  'ops that are null': answering({ allowed: true, ops: null }),
  'denied with ops': answering({ allowed: false, ops: [{ op: 'add', path: '/pstate/x', value: 1 }] }),
  'a rule that throws': {
    AddSwapPathRequest: () => {
      throw new PolicyError('policy:3:7: evaluation takes longer than 100 ms')
    },
  },
  'outside of the state': patching({ op: 'add', path: '/agent_policy/x', value: true }),
  'the whole document': patching({ op: 'replace', path: '', value: {} }),
  'from outside of the state': patching({ op: 'copy', from: '/agent_policy', path: '/pstate/x' }),
  'half a patch': patching(
    { op: 'add', path: '/pstate/half', value: true },
    { op: 'remove', path: '/pstate/missing' },
  ),
}

describe.each(['ttrpc', 'grpc'] as const)('a policy over %s', (framing) => {
  let engines: FakePolicyEngines
  let services: RunningServices
  const recorded = recordingLog()

  beforeEach(async () => {
    engines = new FakePolicyEngines(POLICIES)
    recorded.lines.length = 0
    services = await runServices({ engines, log: { ...recorded.log, isLogged: () => true } })
  })

  afterEach(() => services.close())

  const client = () => clientFor(AgentServiceDefinition, services.connections[framing])
  const setPolicy = (policy: keyof typeof POLICIES | 'not Rego') => client().setPolicy({ policy })
  const call = (path = '/swap') => client().addSwapPath({ path })
  // After the check the call fails by itself, because the path does not exist.
  const PASSED = { code: 'INTERNAL', message: expect.stringContaining('/swap') }

  it('lets every call pass when none is set', async () => {
    await expect(call()).rejects.toMatchObject(PASSED)
  })

  it('denies one call, with the texts that the rule printed, and lets another pass', async () => {
    await setPolicy('deny swap by input.path')
    await expect(call()).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'AddSwapPathRequest is blocked by policy: no swap: /swap',
    })
    await expect(client().getIPTables({})).rejects.not.toMatchObject({ code: 'PERMISSION_DENIED' })
  })

  it('writes no text of a rule at level info, for it may quote the request', async () => {
    await setPolicy('deny swap by input.path')
    await call().catch(() => {})
    const logged = recorded.lines.filter(({ level }) => level !== 'debug')
    expect(logged.at(-1)?.fields).toMatchObject({ error: 'AddSwapPathRequest is blocked by policy' })
    expect(JSON.stringify(logged)).not.toContain('no swap')
  })

  it('lets every call pass when it allows all', async () => {
    await setPolicy('allow all')
    await expect(call()).rejects.toMatchObject(PASSED)
  })

  it('never checks Check and Version', async () => {
    await setPolicy('no rules')
    const health = clientFor(HealthDefinition, services.connections[framing])
    await expect(health.check({})).resolves.toMatchObject({ status: 1 })
    await expect(health.version({})).resolves.toMatchObject({ agentVersion: '1.2.3' })
  })

  it('keeps state from call to call, and begins anew with a new policy', async () => {
    await setPolicy('each input.path once')
    await expect(call()).rejects.toMatchObject(PASSED)
    await expect(call()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    await expect(call('/swap2')).rejects.toMatchObject(PASSED)
    await setPolicy('each input.path once')
    await expect(call()).rejects.toMatchObject(PASSED)
  })

  it('sees the state of the previous check in each of 100 concurrent checks', async () => {
    await setPolicy('each input.path once')
    const calls = Array.from({ length: 100 }, () => call().catch((error) => error))
    const codes = (await Promise.all(calls)).map(({ code }) => code)
    expect(codes.filter((code) => code === 'PERMISSION_DENIED')).toHaveLength(99)
  })

  it.each([
    'no rules',
    'a number',
    'a text',
    'null',
    'an array',
    'an object without allowed',
    'an object with a text in allowed',
    'ops that are no array',
    'a rule that throws',
    'outside of the state',
    'the whole document',
    'from outside of the state',
    'half a patch',
  ] as const)('answers INTERNAL for %s', async (policy) => {
    await setPolicy(policy)
    await expect(call()).rejects.toMatchObject({
      code: 'INTERNAL',
      message: expect.stringMatching(/^AddSwapPathRequest: internal error: ./),
    })
    expect(JSON.stringify(recorded.lines.filter(({ level }) => level !== 'debug'))).not.toContain('100 ms')
  })

  it('treats null ops as none, and applies no ops of a denied call', async () => {
    await setPolicy('ops that are null')
    await expect(call()).rejects.toMatchObject(PASSED)
    await setPolicy('denied with ops')
    await expect(call()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
  })

  it('lets denied and unknown calls pass with AllowRequestsFailingPolicy, with a warning each', async () => {
    await setPolicy('lets all pass')
    await expect(call()).rejects.toMatchObject(PASSED)
    await expect(client().getVolumeStats({ volumeGuestPath: 'x' })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
    })
    await setPolicy('no rules')
    const warnings = recorded.lines
      .filter(({ level, message }) => level === 'warn' && message !== 'rpc')
      .map(({ fields }) => fields.reason)
    expect(warnings).toEqual([
      undefined,
      'AddSwapPathRequest is blocked by policy',
      'VolumeStatsRequest: internal error',
      'SetPolicyRequest: internal error',
    ])
  })

  it('is replaced only by a call that it allows', async () => {
    await setPolicy('nothing, not even another policy')
    await expect(setPolicy('allow all')).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'SetPolicyRequest is blocked by policy: ',
    })
    await expect(call()).rejects.toMatchObject({ code: 'INTERNAL' })
    expect(engines.open).toBe(1)
  })

  it('admits no other replacement between the check of one and its effect', async () => {
    const answers = [setPolicy('nothing, not even another policy'), setPolicy('allow all')]
    expect((await Promise.allSettled(answers)).map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
  })

  it('stays when a new policy cannot be parsed', async () => {
    await setPolicy('deny swap by input.path')
    await expect(setPolicy('not Rego')).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'policy: policy:1:1: not Rego is no policy',
    })
    await expect(call()).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect(engines.open).toBe(1)
    expect(JSON.stringify(recorded.lines.filter(({ level }) => level !== 'debug'))).not.toContain(
      'is no policy',
    )
  })

  it('is saved for the next agent before it is answered', async () => {
    await setPolicy('allow all')
    expect(services.state.list('')).toEqual(['policy'])
  })

  it.each(['at its deadline', 'when its caller leaves'])(
    'lets a call that waits for its check end %s, and never run',
    async (when) => {
      await setPolicy('each input.path once')
      const busy = Promise.withResolvers<void>()
      engines.busy = busy.promise
      const first = call('/first').catch((error) => error)
      const waiting =
        when === 'at its deadline' ? client().addSwapPath({ path: '/swap' }, { timeoutMs: 50 }) : leave()
      await expect(waiting).rejects.toThrow()
      // On gRPC the caller's cancellation may come before the deadline.
      const ended = ['DEADLINE_EXCEEDED', 'CANCELLED']
      while (!recorded.lines.some(({ fields }) => ended.includes(String(fields.code)))) await turns()
      busy.resolve()
      await first
      // The policy did not count the call.
      await expect(call()).rejects.toMatchObject(PASSED)
    },
  )

  /** A call whose caller leaves before the answer; on ttRPC this closes the connection. */
  async function leave(): Promise<unknown> {
    const left = new AbortController()
    const own = ttrpcClient(connect(services.path))
    left.signal.addEventListener('abort', () => own.close())
    const connection = framing === 'grpc' ? services.connections.grpc : own
    const agent = clientFor(AgentServiceDefinition, connection)
    const answer = agent.addSwapPath({ path: '/swap' }, framing === 'grpc' ? { signal: left.signal } : {})
    await turns(50)
    left.abort()
    return answer
  }

  it('refuses calls outside the contract, unless a rule of their name allows them', async () => {
    const version = () => clientFor(IntrospectionDefinition, services.connections[framing]).getVersion({})
    await setPolicy('deny swap by input.path')
    await expect(version()).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'GetVersionRequest is blocked by policy: ',
    })
    await setPolicy('our own services')
    await expect(version()).resolves.toMatchObject({ agentVersion: '1.2.3' })
    const { methods } = IntrospectionDefinition
    const payload = new Uint8Array(0)
    for (const { name } of Object.values(methods).filter(({ name }) => name !== 'GetVersion')) {
      const calling = services.connections[framing].call(IntrospectionDefinition.fullName, name, payload)
      await expect(calling, name).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    }
  })

  it('checks ReadOutput as ReadStdout, and refuses it with an error', async () => {
    const introspection = clientFor(IntrospectionDefinition, services.connections[framing])
    await setPolicy('output by input.container_id and input.len')
    await expect(introspection.readOutput({ containerId: 'c2', len: 7 })).rejects.toMatchObject({
      code: 'PERMISSION_DENIED',
      message: 'ReadStreamRequest is blocked by policy: ',
    })
    await expect(introspection.readOutput({ containerId: 'c1', len: 7 })).rejects.toMatchObject({
      code: 'INVALID_ARGUMENT',
      message: 'Invalid container id',
    })
  })
})

describe('a policy and the services that only gRPC has', () => {
  let services: RunningServices

  beforeEach(async () => {
    services = await runServices({ engines: new FakePolicyEngines(POLICIES) })
  })

  afterEach(() => services.close())

  const setPolicy = (policy: string) =>
    clientFor(AgentServiceDefinition, services.connections.grpc).setPolicy({ policy })

  /** Returns the bytes of a stream's first answer, or the code that ended the stream. */
  async function first(path: string): Promise<Buffer | number> {
    const { client } = grpcClient(services.path)
    const same = (bytes: Buffer) => bytes
    const stream = client.makeBidiStreamRequest(path, same, same)
    try {
      return await new Promise((resolve) => {
        stream.on('data', resolve)
        stream.on('error', ({ code }: { readonly code?: number }) => resolve(code ?? -1))
        stream.write(Buffer.alloc(0))
        stream.end()
      })
    } finally {
      client.close()
    }
  }

  it('refuses reflection and the standard health service', async () => {
    await setPolicy('deny swap by input.path')
    const health = clientFor(StandardHealth, services.connections.grpc)
    await expect(health.check({})).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    await expect(health.list({})).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect(await first('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo')).toBe(7)
    expect(await first('/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo')).toBe(7)
    expect(await first('/grpc.health.v1.Health/Watch')).toBe(7)
  })

  it('lets them answer when rules of their names allow it', async () => {
    await setPolicy('our own services')
    const health = clientFor(StandardHealth, services.connections.grpc)
    await expect(health.check({})).resolves.toEqual({ status: 1 })
    await expect(health.list({})).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    const answer = await first('/grpc.reflection.v1.ServerReflection/ServerReflectionInfo')
    expect(answer).toBeInstanceOf(Buffer)
    expect(ServerReflectionResponse.decode(answer as Buffer).errorResponse).toBeDefined()
    expect(await first('/grpc.health.v1.Health/Watch')).toBeInstanceOf(Buffer)
  })
})

describe('SetPolicy in an image without an engine', () => {
  it('is NOT_FOUND, and every call passes', async () => {
    const services = await runServices()
    try {
      const client = clientFor(AgentServiceDefinition, services.connections.ttrpc)
      await expect(client.setPolicy({ policy: 'package agent_policy' })).rejects.toMatchObject({
        code: 'NOT_FOUND',
        message: '/grpc.AgentService/SetPolicy is not supported',
      })
      const { agentDetails } = await client.getGuestDetails({})
      expect(agentDetails?.extraFeatures).not.toContain('agent-policy')
    } finally {
      await services.close()
    }
  })
})
