import fc from 'fast-check'
import { describe } from 'vitest'
import { AgentError } from '../../src/base/errors.ts'
import { CreateContainerRequest } from '../../src/gen/agent.ts'
import { Spec } from '../../src/gen/oci.ts'
import { checkSpec } from '../../src/oci/check/check-spec.ts'
import { completeSpec, containerSpec, type GuestChoices } from '../../src/oci/container-spec.ts'
import { supportedSpec } from '../../src/oci/guest-support.ts'
import { printJson } from '../../src/oci/json.ts'
import { normalizeSpec } from '../../src/oci/normalize-spec.ts'
import { runtimeConfig } from '../../src/oci/runtime-config.ts'
import { mutated } from '../support/fuzz/bytes.ts'
import { fuzz } from '../support/fuzz/fuzz.ts'
import { MessageBytes, recordedRequests, words } from '../support/fuzz/requests.ts'

const CREATE = recordedRequests().get('grpc.AgentService/CreateContainer') ?? []
const SPECS = CREATE.flatMap((bytes) => CreateContainerRequest.decode(bytes).OCI ?? [])
const ENCODED = SPECS.map((spec) => Spec.encode(spec).finish())

/** Appends fields of another message; each replaces a recorded field or adds to it. */
const merged = fc
  .tuple(fc.constantFrom(...ENCODED), new MessageBytes().of('grpc.Spec'))
  .map(([recorded, more]) => Buffer.concat([recorded, more]))

const WORD = words()

/** A recorded spec with another text in one place. */
const reworded = fc.tuple(fc.constantFrom(...SPECS), fc.nat(1000), WORD).map(([spec, place, word]) => {
  let left = place % textsOf(spec)
  const walk = (value: unknown): unknown => {
    if (typeof value === 'string') return left-- === 0 ? word : value
    if (Array.isArray(value)) return value.map(walk)
    if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return value
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, walk(inner)]))
  }
  // Texts have replaced only texts.
  return Buffer.from(Spec.encode(walk(spec) as Spec).finish())
})

const GUEST: GuestChoices = {
  containerId: 'c1',
  rootfs: '/bundle/rootfs',
  namespaces: { ipc: '/ns/ipc', uts: '/ns/uts', pid: undefined, cgroup: true },
  devices: { updates: [], added: [], pciAddresses: new Map() },
  deviceEdits: [],
  deviceModes: new Map(),
  hooks: { prestart: [], poststart: [], poststop: [] },
  cgroupParent: '/containers',
  nofile: { Type: 'RLIMIT_NOFILE', Hard: 6n, Soft: 5n },
  pids: 100n,
}

const SUPPORT = {
  apparmorProfiles: new Set<string>(),
  hasSelinux: false,
  maxOpenFiles: 1_048_576n,
  hugePageSizes: new Set([2_097_152n]),
  seccompFlags: new Set<string>(),
}

describe('OCI specifications', () => {
  fuzz('oci/specs', {
    share: 110,
    input: fc.oneof(mutated(ENCODED), merged, reworded, new MessageBytes().of('grpc.Spec')),
    show: (bytes) => Buffer.from(bytes).toString('base64'),
    run: convert,
  })
})

/** A spec must be refused as an invalid request, or become one that respects the guest's choices. */
function convert(bytes: Uint8Array): void {
  let requested: Spec
  try {
    requested = Spec.decode(bytes)
  } catch {
    return
  }
  try {
    const normalized = normalizeSpec(requested, () => {})
    const again = normalizeSpec(normalized, () => {})
    if (textOf(again) !== textOf(normalized)) throw new Error('normalized again, it differs')
    checkSpec(completeSpec(normalized))
    checkConverted(
      containerSpec(
        supportedSpec(normalized, SUPPORT, () => {}),
        GUEST,
      ),
    )
  } catch (error) {
    const isRefusal = error instanceof AgentError && ['INVALID_ARGUMENT', 'INTERNAL'].includes(error.code)
    if (!isRefusal || error.errno !== undefined) throw error
  }
}

function checkConverted({ spec, guestSysctls }: ReturnType<typeof containerSpec>): void {
  const config: unknown = JSON.parse(printJson(runtimeConfig(spec)))
  if (typeof config !== 'object' || config === null) throw new Error('no config.json')
  const { Root, Linux, Process } = spec
  if (Root?.Path !== GUEST.rootfs) throw new Error(`root ${Root?.Path}`)
  if (!isBelow('/containers/', Linux.CgroupsPath)) throw new Error(`cgroup ${Linux.CgroupsPath}`)
  for (const { path } of guestSysctls)
    if (!isBelow('/proc/sys/net/', path)) throw new Error(`sysctl ${JSON.stringify(path)}`)
  const kinds = Linux.Namespaces.map(({ Type }) => Type)
  if (new Set(kinds).size !== kinds.length) throw new Error(`namespaces ${kinds.join(', ')}`)
  for (const { Type, Path } of Linux.Namespaces) {
    const own = { pid: '', ipc: '/ns/ipc', uts: '/ns/uts' }[Type] ?? Path
    if (Path !== own) throw new Error(`namespace ${Type} at ${Path}`)
  }
  for (const text of [...Process.Args, ...Process.Env, ...spec.Mounts.map(({ destination }) => destination)])
    if (text.includes('\0')) throw new Error('a NUL byte')
}

function isBelow(folder: string, path: string): boolean {
  return path.startsWith(folder) && !path.split('/').includes('..') && !path.includes('\0')
}

function textsOf(value: unknown): number {
  if (typeof value === 'string') return 1
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return 0
  return Object.values(value).reduce<number>((sum, inner) => sum + textsOf(inner), 0)
}

function textOf(spec: Spec): string {
  return JSON.stringify(spec, (_key, value: unknown) => (typeof value === 'bigint' ? `${value}n` : value))
}
