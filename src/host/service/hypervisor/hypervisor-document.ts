import { AgentError } from '../../../base/errors.ts'
import type { Specification } from '../../../gen/microvm/instance/v1/instance.ts'
import type { VMMetadata, VMSpec } from '../../../gen/vm.ts'
import { asProvided } from '../../instance/documents/host-machines.ts'
import { readDocument } from '../../machine/document/document.ts'
import { parseYaml } from '../../machine/document/parse-yaml.ts'
import { isObject } from '../../machine/document/shape.ts'
import type { Machine } from '../../machine/machine.ts'
import { digestOf, hasCard, invalid, KEYS, tapOf } from './hypervisor-machine.ts'

/** A document with what VMSpec says, in JSON, and what is behind its machine on this host. */
export interface HypervisorDocument {
  readonly document: string
  readonly specification: Specification
}

/**
 * The document with an identity and the metadata of VMSpec and, when that has addresses and the machine no card, with a card that
 * has a tap. It is the host's own, so it may have `domain`. Throws INVALID_ARGUMENT or what a name in it lacks on this host.
 */
export async function documentFor(
  text: string,
  vm: VMSpec,
  metadata: VMMetadata,
): Promise<HypervisorDocument> {
  try {
    const value = parseYaml(text)
    const { at } = readDocument(value)
    const told = withWishes(value, at, wishesOf(vm, metadata))
    const { machine, specification } = await asProvided(readDocument(told))
    checkRoot(machine)
    const isCardWanted = vm.address.length > 0 && !hasCard(specification)
    const whole = isCardWanted ? withCard(told, at, vm) : told
    return { document: JSON.stringify(whole), specification }
  } catch (error) {
    if (!(error instanceof AgentError) || /^(?:--machine|VM_SPEC):/.test(error.message)) throw error
    throw new AgentError(error.code, `--machine: ${error.message}`, { cause: error })
  }
}

function wishesOf(vm: VMSpec, { name, networkConfig }: VMMetadata) {
  const { v4, v6 } = networkConfig ?? {}
  const linkOf = (link: typeof v4) => link && { ip: link.ip, peer: link.peerIp }
  const digits = digestOf(vm).replace(/^(.{8})(.{4}).(.{3}).(.{3})(.{12}).*$/, '$1-$2-8$3-8$4-$5')
  return { uuid: digits, metadata: { name, v4: linkOf(v4), v6: linkOf(v6) } }
}

function withWishes(value: unknown, at: string, { uuid, metadata }: ReturnType<typeof wishesOf>): unknown {
  return withPart(value, at, (part) => {
    const features = isObject(part.features) ? part.features : {}
    if (features.metadata != null) throw invalid(`--machine: ${at}.features.metadata: VM_SPEC gives it`)
    const smbios = { uuid, ...(isObject(features.smbios) ? features.smbios : {}) }
    return { ...part, features: { ...features, smbios, metadata } }
  })
}

/** QEMU makes the tap, which gets the host's addresses. */
function withCard(value: unknown, at: string, vm: VMSpec): unknown {
  const { mac, name } = tapOf(vm)
  const card = { type: 'ethernet', target: { dev: name }, mac: { address: mac } }
  return withPart(value, at, (part) => {
    const domain = isObject(part.domain) ? part.domain : {}
    const devices = isObject(domain.devices) ? domain.devices : {}
    return { ...part, domain: { ...domain, devices: { ...devices, interfaces: [card] } } }
  })
}

type Part = Readonly<Record<string, unknown>>

/** The value with another part at the path `at`. */
function withPart(value: unknown, at: string, change: (part: Part) => Part): Part {
  const object = isObject(value) ? value : {}
  const [name = '', ...rest] = at.split('.')
  const part = isObject(object[name]) ? object[name] : {}
  return { ...object, [name]: rest.length === 0 ? change(part) : withPart(part, rest.join('.'), change) }
}

/** Throws INVALID_ARGUMENT where the firmware would boot another device than the root disk. */
function checkRoot({ devices, firmware }: Machine): void {
  const root = devices[KEYS.root]
  if (root === undefined || firmware.kernel !== undefined) return
  const orderOf = ({ bootindex = Number.POSITIVE_INFINITY }: typeof root.properties) => Number(bootindex)
  const other = Object.entries(devices).find(
    ([key, { kind, properties }]) =>
      key !== KEYS.root &&
      (kind === 'disk' || properties.bootindex !== undefined) &&
      orderOf(properties) <= orderOf(root.properties),
  )
  if (other !== undefined)
    throw invalid(
      `--machine: devices.root.properties.bootindex: want a lower bootOrder than that of ${other[0]}, for the firmware boots it`,
    )
}
