import { type DeepPartial, EnsureInstanceRequest } from '../../../src/gen/microvm/instance/v1/instance.ts'

/** A request for a small machine with a console. */
export function ensureRequest(
  key: string,
  {
    tenant = '',
    specification = {},
  }: {
    readonly tenant?: string
    readonly specification?: DeepPartial<NonNullable<EnsureInstanceRequest['specification']>>
  } = {},
): EnsureInstanceRequest {
  return EnsureInstanceRequest.fromPartial({
    properties: { key, tenant },
    specification: {
      board: {
        machine: 'pc-q35-7.2',
        memoryMib: 256n,
        cpus: 1,
        kernel: '/boot/vmlinuz',
        ...specification.board,
      },
      devices: { console: { backend: 'output', serial: {} }, ...specification.devices },
      backends: { output: { console: {} }, ...specification.backends },
    },
  })
}
