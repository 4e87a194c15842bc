import type { Machine } from '../../../src/host/machine/machine.ts'
import type { Backends } from '../../../src/host/qemu/machine/as-spec.ts'
import { firmwareWords } from '../../../src/host/qemu/machine/firmware-words.ts'
import { machineArguments } from '../../../src/host/qemu/machine/machine-arguments.ts'
import { provisionsFor } from '../../../src/host/qemu/machine/provisions.ts'
import { specKey } from '../../../src/host/spec/spec-key.ts'

/** QEMU's arguments for the machine that was written down, on a host of this test. */
export function recordedArguments(machine: Machine): readonly string[] {
  const backends: Backends = {
    'root-backend': { kind: 'file', path: '/disks/root', access: 'read-write', cache: 'none', io: 'native' },
    'disk1-backend': { kind: 'file', path: '/disks/data', access: 'read-write' },
    'nic0-backend': { kind: 'tap', interfaceName: 'tap0' },
    'vsock0-backend': { kind: 'vsock-daemon' },
    'share0-backend': { kind: 'virtiofsd', path: '/home' },
    'firmware-kernel': { kind: 'content', path: '/boot/vmlinuz' },
    'firmware-initrd': { kind: 'content', path: '/boot/initrd' },
  }
  const sockets = new Map(['vsock0', 'share0'].map((key) => [specKey(`${key}-backend`), `run/${key}.sock`]))
  const host = { sockets, ownFile: (name: string) => `run/${name}`, variables: 'variables.fd' }
  return machineArguments(machine, {
    ...{ acceleration: 'tcg', nowMs: 0, isShared: true },
    provide: provisionsFor(machine, backends, host),
    firmwareWords: firmwareWords(machine, backends, host),
  })
}
