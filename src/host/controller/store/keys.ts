import { createHash } from 'node:crypto'
import {
  type Compare,
  Compare_CompareResult,
  Compare_CompareTarget,
  type RequestOp,
} from '../../../gen/etcd/rpc.ts'

/** Of the VMs: `vms/NAMESPACE/NAME`. */
export const VMS = 'vms/'
/** Of the hosts: `hosts/ID`. */
export const HOSTS = 'hosts/'
/** Of the leases: `leases/NAMESPACE/NAME`. */
const LEASES = 'leases/'

/** Of the VMs that a host runs: `runs/HOST/NAMESPACE/NAME`, without a value. */
const RUNS = 'runs/'

/** A namespace has no "/", and neither has a name. */
export interface VmName {
  readonly namespace: string
  readonly name: string
}

export function vmKey({ namespace, name }: VmName): Buffer {
  return Buffer.from(`${VMS}${namespace}/${name}`)
}

export function leaseKey({ namespace, name }: VmName): Buffer {
  return Buffer.from(`${LEASES}${namespace}/${name}`)
}

/** Has a "/" at its end, so that no host has the VMs of one with a longer id. */
export function runsOf(host: string): string {
  return `${RUNS}${host}/`
}

export function runKey(host: string, { namespace, name }: VmName): Buffer {
  return Buffer.from(`${runsOf(host)}${namespace}/${name}`)
}

export function hostKey(id: string): Buffer {
  return Buffer.from(`${HOSTS}${id}`)
}

/** Id of a host's etcd lease: 63 bits, and not 0, which would be none. */
export function hostLease(id: string): bigint {
  return (createHash('sha256').update(`host/${id}`).digest().readBigUInt64BE() >> 1n) | 1n
}

/** The first key after all those with the prefix, whose last character is ASCII. */
export function endOfPrefix(prefix: string): Buffer {
  const end = Buffer.from(prefix)
  end.writeUInt8(end.readUInt8(end.length - 1) + 1, end.length - 1)
  return end
}

type Comparing = Partial<Compare>

/** The key is as it was at this revision; 0 for one that is not there. */
export function unchanged(key: Uint8Array, modRevision: bigint): Comparing {
  return {
    key,
    result: Compare_CompareResult.EQUAL,
    target: Compare_CompareTarget.MOD,
    modRevision,
  }
}

export function put(key: Uint8Array, value: Uint8Array, lease = 0n): RequestOp {
  return { requestPut: { key, value, lease } }
}

export function get(key: Uint8Array): RequestOp {
  return { requestRange: { key, rangeEnd: new Uint8Array(0), limit: 0n, revision: 0n } }
}

export function remove(key: Uint8Array): RequestOp {
  return { requestDeleteRange: { key, rangeEnd: new Uint8Array(0) } }
}
