import { neverAborted } from '../../../src/base/abort.ts'
import {
  Backend,
  type DeepPartial,
  Device,
  EnsureInstanceRequest,
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

/** A machine with a disk and a free port. `change` has fields of the board, and other devices and backends. */
export function specification({ board, ...change }: DeepPartial<Specification> = {}): Specification {
  return Specification.fromPartial({
    board: { machine: 'pc-q35-7.2', memoryMib: 64n, cpus: 1, kernel: '/boot/vmlinuz', ...board },
    devices: { root: disk(3, 'root', 'root-file'), port: { slot: 4, rootPort: {} } },
    backends: { 'root-file': file('/disks/root-16M') },
    ...change,
  })
}

/** For {@link specification}: a console in place of the disk, which a tenant may have. */
export const CONSOLE_ONLY = {
  devices: { console: { backend: 'output', serial: {} } },
  backends: { output: { console: {} } },
} as const satisfies DeepPartial<Specification>

export function ensureRequest(
  key: string,
  change: { readonly tenant?: string; readonly specification?: DeepPartial<Specification> } = {},
): EnsureInstanceRequest {
  const { tenant = '' } = change
  return EnsureInstanceRequest.fromPartial({
    properties: { key, tenant },
    specification: specification(change.specification),
  })
}
