import { AgentError } from '../../../base/errors.ts'
import {
  type Backend,
  type File,
  File_Access,
  type Lease,
  type Specification,
} from '../../../gen/microvm/instance/v1/instance.ts'
import type { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { LeaseMode } from '../../../gen/vm.ts'
import { pathOf } from '../../spec/component-path.ts'

const DEFAULT_TTL_MS = 15_000
const TTL_MS = { least: 1000, most: 3_600_000 } as const

/** The lease that a request wants of a new instance. Throws INVALID_ARGUMENT naming the field. */
export function checkedLease(lease: Lease | undefined): Lease | undefined {
  if (lease === undefined) return undefined
  const { mode, ttlMs } = lease
  const refuse = (field: string, text: string): never => {
    throw new AgentError('INVALID_ARGUMENT', `properties.lease.${field}: ${text}`)
  }
  if (mode === LeaseMode.LM_STORAGE_LOCKING)
    return ttlMs === 0 ? { mode, ttlMs } : refuse('ttl_ms', 'want it with LM_FULL_LEASES only')
  if (mode !== LeaseMode.LM_FULL_LEASES)
    return refuse('mode', `${mode}, want LM_STORAGE_LOCKING or LM_FULL_LEASES`)
  if (ttlMs !== 0 && (ttlMs < TTL_MS.least || ttlMs > TTL_MS.most))
    return refuse('ttl_ms', `${ttlMs}, want ${TTL_MS.least} to ${TTL_MS.most}`)
  return { mode, ttlMs: ttlMs || DEFAULT_TTL_MS }
}

/** Whether a machine runs only while a grant lasts. */
export function isFull(lease: Lease | undefined): boolean {
  return lease?.mode === LeaseMode.LM_FULL_LEASES
}

/** Whether a server has the file for QEMU, which would write to it. */
export function isVolume(
  backend: Backend,
  lease: Lease | undefined,
): backend is Backend & { readonly file: File } {
  return isFull(lease) && backend.file?.access === File_Access.READ_WRITE
}

/** What QEMU opens itself. */
export function withoutVolumes(
  specification: Specification,
  { properties }: Pick<InstanceRecord, 'properties'>,
): Specification {
  const others = Object.entries(specification.backends).filter(
    ([, backend]) => !isVolume(backend, properties?.lease),
  )
  return { ...specification, backends: Object.fromEntries(others) }
}

/** The same with the host of each volume, which is `own` where none is named. */
export function withVolumeHosts<Record extends Pick<InstanceRecord, 'properties' | 'specification'>>(
  record: Record,
  own: string,
): Record {
  const { properties, specification } = record
  if (specification === undefined || !isFull(properties?.lease)) return record
  const backends = Object.entries(specification.backends).map(([key, backend]) =>
    isVolume(backend, properties?.lease)
      ? [key, { ...backend, file: { ...backend.file, host: backend.file.host || own } }]
      : [key, backend],
  )
  return { ...record, specification: { ...specification, backends: Object.fromEntries(backends) } }
}

type AnyBackend = { readonly kind: string; readonly access?: string; readonly host?: string | undefined }

/** What changes nothing outside the machine, or is fenced. */
const FENCED: readonly string[] = ['tap', 'vhost-vsock', 'vsock-daemon', 'console', 'content']

/**
 * Throws FAILED_PRECONDITION naming a backend that a machine could still write to, or send by, after the end of its lease: nothing
 * but the end of its processes would stop it.
 */
export function refuseUnfenced(backends: Readonly<Record<string, AnyBackend>>): void {
  for (const [key, { kind, access }] of Object.entries(backends)) {
    const isOnlyRead = (kind === 'file' || kind === 'network-disk') && access !== 'read-write'
    if (FENCED.includes(kind) || isOnlyRead) continue
    throw new AgentError(
      'FAILED_PRECONDITION',
      `${pathOf('backends', key)}: cannot be fenced (${kind}), as LM_FULL_LEASES wants it; want only taps, and disks of specifications`,
    )
  }
}

/** The same for what a machine that runs is to get. */
export function refuseUnfencedFor(
  { properties }: Pick<InstanceRecord, 'properties'>,
  backends: Readonly<Record<string, AnyBackend>>,
): void {
  if (isFull(properties?.lease)) refuseUnfenced(backends)
}

/** Throws FAILED_PRECONDITION for a machine whose layers other writers would not be kept from. */
export function refuseLayers({ properties }: Pick<InstanceRecord, 'properties'>): void {
  if (!isFull(properties?.lease)) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    'properties.lease: the layers of snapshots cannot be fenced, as LM_FULL_LEASES wants it',
  )
}

/** Throws FAILED_PRECONDITION naming a disk that another host has, of a machine that could not be fenced from it. */
export function refuseHosts({ backends }: { readonly backends: Readonly<Record<string, AnyBackend>> }): void {
  for (const [key, { host }] of Object.entries(backends))
    if (host !== undefined)
      throw new AgentError(
        'FAILED_PRECONDITION',
        `${pathOf('backends', key, 'file', 'host')}: want properties.lease with LM_FULL_LEASES for a disk of another host`,
      )
}

/** nft(8) has its name in a string. Throws FAILED_PRECONDITION. */
export function checkInterface(key: string, name: string): void {
  if (/^[\w.-]+$/.test(name)) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    `${pathOf('backends', key)}: interface ${JSON.stringify(name)}: want letters, digits, "_", "-" and "." with LM_FULL_LEASES`,
  )
}

/** Throws FAILED_PRECONDITION for a machine with a lease: one that is made of it elsewhere would have none. */
export function refuseLease({
  record: { properties },
}: {
  readonly record: Pick<InstanceRecord, 'properties'>
}): void {
  if (properties?.lease === undefined) return
  throw new AgentError(
    'FAILED_PRECONDITION',
    'properties.lease: what is saved or cloned would run without it',
  )
}
