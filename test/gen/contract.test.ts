import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  createFileRegistry,
  type DescEnum,
  type DescField,
  type DescMessage,
  type DescService,
  type FileRegistry,
  fromBinary,
  ScalarType,
} from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { describe, expect, it } from 'vitest'
import { generatedRoot } from '../../src/build/generate.ts'
import { AgentServiceDefinition } from '../../src/gen/agent.ts'
import { HealthDefinition } from '../../src/gen/health.ts'
import contract from '../fixtures/agent-api.json' with { type: 'json' }

const CONTRACT_PACKAGES = ['grpc', 'types']

describe('the descriptor set', () => {
  const registry = readDescriptors()
  const described = describeInContractForm(registry)

  it('contains the services of the contract, method by method', () => {
    expect(described.services).toEqual(contract.services)
  })

  it('contains the messages of the contract, field by field', () => {
    expect(described.messages).toEqual(contract.messages)
  })

  it('contains the enums of the contract, value by value', () => {
    expect(described.enums).toEqual(contract.enums)
  })

  it('has no streaming method in the contract', () => {
    const kinds = [...registry].flatMap((type) =>
      type.kind === 'service' && CONTRACT_PACKAGES.includes(type.file.proto.package)
        ? type.methods.map((method) => method.methodKind)
        : [],
    )
    expect(new Set(kinds)).toEqual(new Set(['unary']))
  })
})

describe('the generated service definitions', () => {
  it.each([AgentServiceDefinition, HealthDefinition])(
    '$fullName has the methods of the contract',
    (definition) => {
      const methods = Object.values(definition.methods).map((method) => method.name)
      expect(methods.sort()).toEqual(Object.keys(contract.services[definition.fullName]).sort())
    },
  )
})

function readDescriptors(): FileRegistry {
  const bytes = readFileSync(join(generatedRoot, 'descriptors.binpb'))
  return createFileRegistry(fromBinary(FileDescriptorSetSchema, bytes))
}

/** Describes the contract's packages in the shape of the contract's JSON. */
function describeInContractForm(registry: FileRegistry) {
  const types = [...registry].filter((type) => CONTRACT_PACKAGES.includes(type.file.proto.package))
  return {
    services: collect(
      types.filter((type) => type.kind === 'service').map((service) => [service, methodsOf(service)]),
    ),
    messages: collect(
      types.filter((type) => type.kind === 'message').map((message) => [message, fieldsOf(message)]),
    ),
    enums: collect(types.filter((type) => type.kind === 'enum').map((values) => [values, valuesOf(values)])),
  }
}

function collect<T>(entries: readonly (readonly [{ readonly typeName: string }, T])[]): Record<string, T> {
  return Object.fromEntries(entries.map(([type, value]) => [type.typeName, value]))
}

function methodsOf(service: DescService) {
  return Object.fromEntries(
    service.methods.map((method) => [
      method.name,
      { request: nameSeenFrom(service, method.input), response: nameSeenFrom(service, method.output) },
    ]),
  )
}

function fieldsOf(message: DescMessage) {
  return Object.fromEntries(message.fields.map((field) => [field.name, fieldInContractForm(field)]))
}

function valuesOf(type: DescEnum) {
  return Object.fromEntries(type.values.map((value) => [value.name, value.number]))
}

function fieldInContractForm(field: DescField) {
  return {
    number: field.number,
    type: typeOf(field),
    ...(field.fieldKind === 'list' ? { repeated: true } : {}),
    ...(field.proto.proto3Optional ? { optional: true } : {}),
    ...(field.oneof === undefined ? {} : { oneof: field.oneof.name }),
  }
}

function typeOf(field: DescField): string {
  const name = elementTypeOf(field)
  return field.fieldKind === 'map' ? `map<${scalarName(field.mapKey)}, ${name}>` : name
}

function elementTypeOf(field: DescField): string {
  const type = field.message ?? field.enum
  if (type !== undefined) return nameSeenFrom(field.parent, type)
  if (field.scalar === undefined) throw new Error(`${field} has no type`)
  return scalarName(field.scalar)
}

function scalarName(scalar: ScalarType): string {
  return ScalarType[scalar].toLowerCase()
}

/** The name as in the contract: short within a package or message, full otherwise. */
function nameSeenFrom(from: DescMessage | DescService, type: DescMessage | DescEnum): string {
  return type.file.proto.package === from.file.proto.package ? type.name : type.typeName
}
