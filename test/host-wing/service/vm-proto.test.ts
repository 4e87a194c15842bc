import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  createFileRegistry,
  type DescField,
  type DescMessage,
  fromBinary,
  ScalarType,
} from '@bufbuild/protobuf'
import { FileDescriptorSetSchema } from '@bufbuild/protobuf/wkt'
import { describe, expect, it } from 'vitest'
import { generatedRoot } from '../../../src/build/generate.ts'

const PACKAGE = 'metropolis.proto.vm.'

/** Written by hand from the protocol, as `name number type`. The fields from 100 on are additions of this project. */
const MESSAGES: Readonly<Record<string, readonly string[]>> = {
  VMSpec: [
    'name 1 string',
    'namespace 2 string',
    'mode 3 VMSpec.StartMode',
    'initial_image 4 InitialImage',
    'address 5 repeated string',
    'controller_endpoint 6 string',
    'lease_mode 7 LeaseMode',
  ],
  InitialImage: ['url 1 string'],
  VMMetadata: ['name 1 string', 'network_config 2 NetworkConfig'],
  PTPAddress: ['ip 1 string', 'peer_ip 2 string'],
  NetworkConfig: ['v4 1 PTPAddress', 'v6 2 PTPAddress'],
  HypervisorID: ['vm_name 1 string', 'namespace 2 string', 'pod_name 3 string', 'run_id 4 uint64'],
  RunLeaseRequest: ['us 1 HypervisorID'],
  RunLeaseUpdate: [
    'status 1 RunLeaseUpdate.Status',
    'epoch 100 uint64',
    'ttl_ms 101 uint64',
    'nonce 102 bytes',
  ],
  MigrationSwitchoverRequest: [
    'us 1 HypervisorID',
    'them 2 HypervisorID',
    'volumes 100 repeated MigrationSwitchoverRequest.VolumePlace',
  ],
  'MigrationSwitchoverRequest.VolumePlace': [
    'key 1 string',
    'host 2 string',
    'path 3 string',
    'epoch 4 uint64',
  ],
  MigrationSwitchoverResponse: [],
  EnsureMigrationTargetRequest: ['us 1 HypervisorID', 'to_host 100 string'],
  EnsureMigrationTargetResponse: [
    'action 1 EnsureMigrationTargetResponse.Action',
    'target_endpoint 2 string',
    'reason 100 string',
    'host 101 string',
  ],
  ResetRequest: [],
  ResetResponse: [],
  ConsoleIO: ['data 1 bytes'],
  MigrationProtocol: ['qmeu_block 1 MigrationProtocol.Qemu in kind'],
  'MigrationProtocol.Qemu': [
    'constraint_with_blockmigration 1 bool',
    'negotiated_endpoint 2 string',
    'constraint_nbd 100 repeated MigrationProtocol.Qemu.Disk',
    'negotiated_nbd_endpoint 101 string',
    'negotiated_export 102 repeated MigrationProtocol.Qemu.Export',
    'constraint_tls 103 bool',
    'constraint_handover 104 uint32',
  ],
  'MigrationProtocol.Qemu.Disk': ['key 1 string', 'size_bytes 2 uint64', 'path 3 string'],
  'MigrationProtocol.Qemu.Export': ['key 1 string', 'name 2 string'],
  StartMigrationRequest: [
    'supported_migration_protocol 1 repeated MigrationProtocol',
    'us 2 HypervisorID',
    'dry_run 100 bool',
  ],
  StartMigrationResponse: ['migration_protocol 1 MigrationProtocol'],
}

const ENUMS: Readonly<Record<string, readonly string[]>> = {
  'VMSpec.StartMode': ['SM_UNKNOWN', 'SM_RUN', 'SM_PREPARE_IMAGE', 'SM_INCOMING_MIGRATION'],
  LeaseMode: ['LM_UNKNOWN', 'LM_STORAGE_LOCKING', 'LM_FULL_LEASES'],
  'RunLeaseUpdate.Status': ['STATUS_UNKNOWN', 'STATUS_OK', 'STATUS_TERMINATE'],
  'EnsureMigrationTargetResponse.Action': ['ACTION_UNKNOWN', 'ACTION_LIVE_MIGRATE', 'ACTION_SOFT_SHUTDOWN'],
}

const METHODS: readonly string[] = [
  'VMController.EnsureMigrationTarget unary EnsureMigrationTargetRequest EnsureMigrationTargetResponse',
  'VMController.MigrationSwitchover unary MigrationSwitchoverRequest MigrationSwitchoverResponse',
  'VMController.RunLease server_streaming RunLeaseRequest RunLeaseUpdate',
  'OOBManagement.Reset unary ResetRequest ResetResponse',
  'OOBManagement.Console bidi_streaming ConsoleIO ConsoleIO',
  'Hypervisor.StartMigration unary StartMigrationRequest StartMigrationResponse',
]

describe('proto/vm.proto', () => {
  const set = fromBinary(FileDescriptorSetSchema, readFileSync(join(generatedRoot, 'descriptors.binpb')))
  const types = [...createFileRegistry(set)].filter((type) => type.typeName.startsWith(PACKAGE))

  it('has the messages of the protocol, field by field', () => {
    const messages = types.filter((type) => type.kind === 'message')
    expect(
      Object.fromEntries(messages.map((message) => [short(message.typeName), fieldsOf(message)])),
    ).toEqual(MESSAGES)
  })

  it('has the enums of the protocol, numbered from 0', () => {
    const enums = types.filter((type) => type.kind === 'enum')
    const numbered = (names: readonly string[]) => names.map((name, number) => `${name} ${number}`)
    const rows = enums.map(({ typeName, values }) => [
      short(typeName),
      values.map(({ name, number }) => `${name} ${number}`),
    ])
    expect(Object.fromEntries(rows)).toEqual(
      Object.fromEntries(Object.entries(ENUMS).map(([name, values]) => [name, numbered(values)])),
    )
  })

  it('has the services of the protocol, method by method', () => {
    const services = types.filter((type) => type.kind === 'service')
    const rows = services.flatMap(({ typeName, methods }) =>
      methods.map(
        ({ name, methodKind, input, output }) =>
          `${short(typeName)}.${name} ${methodKind} ${short(input.typeName)} ${short(output.typeName)}`,
      ),
    )
    expect(rows.sort()).toEqual([...METHODS].sort())
  })
})

function short(typeName: string): string {
  return typeName.slice(PACKAGE.length)
}

function fieldsOf({ fields }: DescMessage): readonly string[] {
  return fields.map((field) => {
    const type = field.message ?? field.enum
    const name = type === undefined ? scalarOf(field) : short(type.typeName)
    const list = field.fieldKind === 'list' ? 'repeated ' : ''
    return `${field.name} ${field.number} ${list}${name}${field.oneof === undefined ? '' : ` in ${field.oneof.name}`}`
  })
}

function scalarOf({ scalar }: DescField): string {
  return scalar === undefined ? '' : ScalarType[scalar].toLowerCase()
}
