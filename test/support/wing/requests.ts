import { neverAborted } from '../../../src/base/abort.ts'
import {
  Backend,
  Device,
  type EnsureInstanceRequest,
  File_Access,
  Specification,
} from '../../../src/gen/microvm/instance/v1/instance.ts'
import type { Caller } from '../../../src/host/instance/instances.ts'

export const ADMIN: Caller = { tenant: undefined, signal: neverAborted, inStep: () => {} }

export function tenant(name: string): Caller {
  return { ...ADMIN, tenant: name }
}

function disk(slot: number, serial: string, backend: string): Device {
  return Device.fromPartial({ backend, slot, disk: { serial } })
}

export function file(path: string): Backend {
  return Backend.fromPartial({ file: { path, access: File_Access.READ_WRITE } })
}

export function specification(change: Partial<Specification> = {}): Specification {
  return Specification.fromPartial({
    board: { machine: 'pc-q35-7.2', memoryMib: 64n, cpus: 1, kernel: '/boot/vmlinuz' },
    devices: { root: disk(3, 'root', 'root-file'), port: { slot: 4, rootPort: {} } },
    backends: { 'root-file': file('/disks/root-16M') },
    ...change,
  })
}

export function ensureRequest(key: string, change: Partial<Specification> = {}): EnsureInstanceRequest {
  return { properties: { key, tenant: '', labels: {} }, specification: specification(change) }
}
