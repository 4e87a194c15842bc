import { beforeAll, describe, expect, it } from 'vitest'
import { containerMethods } from '../../../src/agent/service/methods/container.ts'
import { guestMethods } from '../../../src/agent/service/methods/guest.ts'
import { healthMethods } from '../../../src/agent/service/methods/health.ts'
import { networkMethods } from '../../../src/agent/service/methods/network.ts'
import { policyMethods } from '../../../src/agent/service/methods/policy.ts'
import { processMethods } from '../../../src/agent/service/methods/process.ts'
import { sandboxMethods } from '../../../src/agent/service/methods/sandbox.ts'
import { stdioMethods } from '../../../src/agent/service/methods/stdio.ts'
import { storageMethods } from '../../../src/agent/service/methods/storage.ts'
import type { DeclaredMethod, ServiceMethods } from '../../../src/agent/service/rpc.ts'
import { declaredMethods, type ServiceContext } from '../../../src/agent/service/services.ts'
import { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import { HealthDefinition } from '../../../src/gen/health.ts'
import { messageFields, REQUESTS } from '../../../src/gen/message-fields.ts'
import { IntrospectionDefinition } from '../../../src/gen/microvm/agent/v1/introspection.ts'
import { LifecycleDefinition } from '../../../src/gen/microvm/agent/v1/lifecycle.ts'
import { serviceDependencies } from '../../support/agent/service-dependencies.ts'

describe('the declared RPCs', () => {
  let given: ServiceContext
  let methods: readonly DeclaredMethod<unknown, unknown>[]

  beforeAll(async () => {
    given = await serviceDependencies()
    methods = declaredMethods(given)
  })

  it('are the methods of the services, each with a declaration', () => {
    const services = [HealthDefinition, IntrospectionDefinition, LifecycleDefinition, AgentServiceDefinition]
    const names = services.flatMap(({ fullName, methods }) =>
      Object.values(methods).map(({ name }) => `${fullName}/${name}`),
    )
    expect(methods.map(({ name }) => name)).toEqual(names)
    expect(methods.filter(({ rpc }) => rpc === undefined)).toEqual([])
  })

  it('are declared in one area each', () => {
    const areas = [
      ...[sandboxMethods, containerMethods, processMethods, stdioMethods].map((area) => area(given.sandbox)),
      storageMethods(given.storage, given.sandbox),
      ...[networkMethods(given.network), guestMethods(given.guest, given.lifecycle)],
      policyMethods(given.policy),
    ]
    const names = areas.flatMap((area) => Object.keys(area))
    expect(names.toSorted()).toEqual(Object.keys(AgentServiceDefinition.methods).toSorted())
  })

  it('leave the last field of long requests in its file, by the number that the proto gives it', () => {
    const left = methods.flatMap(({ name, rpc }) =>
      rpc.dataField === undefined ? [] : [[name, rpc.dataField]],
    )
    const names = ['grpc.AgentService/WriteStdin', 'grpc.AgentService/CopyFile']
    const lastFields = names.map((name) => {
      const { number, name: field } = messageFields()[REQUESTS[name] ?? '']?.at(-1) ?? {}
      expect(field).toBe('data')
      return [name, number]
    })
    expect(left).toEqual(lastFields)
  })

  it('do not compile when one is missing', () => {
    const { check } = healthMethods('1.2.3')
    // @ts-expect-error: `version` is missing.
    const incomplete: ServiceMethods<typeof HealthDefinition> = { check }
    expect(Object.keys(incomplete)).toEqual(['check'])
  })
})
