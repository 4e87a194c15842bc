import { BinaryReader, WireType } from '@bufbuild/protobuf/wire'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { familyOf, parseIp } from '../../../base/ip-address.ts'
import { LeaseMode, VMSpec, VMSpec_StartMode } from '../../../gen/vm.ts'
import { checkVmName, quoted } from '../../controller/hypervisor-id.ts'
import { NAMESPACE } from '../../instance/moving/only-vm.ts'
import { specKey } from '../../spec/spec-key.ts'
import { parseEndpoint } from '../../tls/endpoint.ts'

/** Linux takes no longer variable in an environment (MAX_ARG_STRLEN of execve(2)). */
const MAX_TEXT_BYTES = 131_072

const { LengthDelimited, Varint } = WireType

/** The fields of VMSpec by their numbers, and those of its field that is a message. */
const FIELDS = {
  ...{ 1: LengthDelimited, 2: LengthDelimited, 3: Varint, 4: LengthDelimited },
  ...{ 5: LengthDelimited, 6: LengthDelimited, 7: Varint },
}
const INITIAL_IMAGE = { number: 4, fields: { 1: LengthDelimited } } as const

/** The VMSpec of the environment's VM_SPEC, checked. Throws INVALID_ARGUMENT that names the field. */
export function readVmSpec(text: string | undefined): VMSpec {
  const spec = decode(bytesOf(text))
  if (spec.name === '') refuse('name: missing, want the key of the machine')
  try {
    specKey(spec.name)
  } catch (error) {
    refuse(`name: ${messageOf(error)}`)
  }
  checkMode(spec)
  checkLeases(spec)
  checkController(spec)
  checkAddresses(spec.address)
  return spec
}

function bytesOf(text = ''): Buffer {
  if (text.length > MAX_TEXT_BYTES) refuse(`${text.length} bytes, want at most ${MAX_TEXT_BYTES}`)
  const base64 = text.replace(/\s/g, '')
  if (base64 === '') refuse('missing, want a VMSpec of proto/vm.proto in base64')
  if (!/^[A-Za-z0-9+/]+={0,2}$/.test(base64) || base64.length % 4 !== 0)
    refuse('not base64, want a VMSpec of proto/vm.proto in base64')
  return Buffer.from(base64, 'base64')
}

function decode(bytes: Buffer): VMSpec {
  try {
    refuseUnknown('', bytes, FIELDS)
    return VMSpec.decode(bytes)
  } catch (error) {
    if (error instanceof AgentError) throw error
    return refuse(`not a VMSpec of proto/vm.proto: ${messageOf(error)}`)
  }
}

/**
 * A field that this hypervisor does not know may be one that the machine must not run without, and so may one of another
 * type, which the decoder takes for unknown.
 */
function refuseUnknown(path: string, bytes: Uint8Array, known: Readonly<Record<number, WireType>>): void {
  const reader = new BinaryReader(bytes)
  while (reader.pos < reader.len) {
    const [number, wireType] = reader.tag()
    if (known[number] !== wireType) refuse(`${path}field ${number}: unknown, want a VMSpec of proto/vm.proto`)
    if (path === '' && number === INITIAL_IMAGE.number)
      refuseUnknown('initial_image: ', reader.bytes(), INITIAL_IMAGE.fields)
    else reader.skip(wireType, number)
  }
}

function checkMode({ mode, initialImage }: VMSpec): void {
  const isPrepared = mode === VMSpec_StartMode.SM_PREPARE_IMAGE
  if (mode !== VMSpec_StartMode.SM_RUN && mode !== VMSpec_StartMode.SM_INCOMING_MIGRATION && !isPrepared)
    refuse(`mode: ${nameOf(VMSpec_StartMode, mode)}, want SM_RUN, SM_PREPARE_IMAGE or SM_INCOMING_MIGRATION`)
  if (isPrepared && (initialImage?.url ?? '') === '')
    refuse('initial_image.url: missing, want it with SM_PREPARE_IMAGE')
}

function checkLeases({ leaseMode }: VMSpec): void {
  if (leaseMode === LeaseMode.LM_STORAGE_LOCKING || leaseMode === LeaseMode.LM_FULL_LEASES) return
  refuse(`lease_mode: ${nameOf(LeaseMode, leaseMode)}, want LM_STORAGE_LOCKING or LM_FULL_LEASES`)
}

function checkController(spec: VMSpec): void {
  const { controllerEndpoint, leaseMode, name, namespace } = spec
  if (controllerEndpoint === '') {
    if (isAwaited(spec)) refuse('mode: SM_INCOMING_MIGRATION: want controller_endpoint with it')
    if (leaseMode === LeaseMode.LM_FULL_LEASES)
      refuse('lease_mode: LM_FULL_LEASES: want controller_endpoint with it')
    return
  }
  if (parseEndpoint(controllerEndpoint) === undefined)
    refuse(`controller_endpoint: ${quoted(controllerEndpoint)}, want HOST:PORT, such as 192.0.2.9:7440`)
  checkVmName('VM_SPEC: namespace', 'VM_SPEC: name', { name, namespace: namespace || NAMESPACE })
}

/** Whether the machine comes from another host. */
export function isAwaited({ mode }: Pick<VMSpec, 'mode'>): boolean {
  return mode === VMSpec_StartMode.SM_INCOMING_MIGRATION
}

function checkAddresses(addresses: readonly string[]): void {
  const families = new Set<string>()
  for (const text of addresses) {
    const address = parseIp(text.replace(/\/.*$/, ''))
    if (address === undefined) refuse(`address: ${JSON.stringify(text)} is no IP address`)
    const family = familyOf(address)
    if (families.has(family)) refuse(`address: two of ${family}, want at most one`)
    families.add(family)
  }
}

function nameOf(names: Readonly<Record<string, number>>, value: number): string {
  return Object.entries(names).find(([, number]) => number === value)?.[0] ?? `${value}`
}

function refuse(what: string): never {
  throw new AgentError('INVALID_ARGUMENT', `VM_SPEC: ${what}`)
}
