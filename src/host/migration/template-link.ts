import { mkdir, rename, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Duplex } from 'node:stream'
import { AgentError } from '../../base/errors.ts'
import { METADATA_ITEM } from '../../base/vm-metadata/point-to-point.ts'
import { connectAgent } from '../../client/connection/connect-agent.ts'
import { Backend, Device, File_Access, type Specification } from '../../gen/microvm/instance/v1/instance.ts'
import { VMMetadata } from '../../gen/vm.ts'
import type { Caller, Instances } from '../instance/instances.ts'
import { AGENT_PORT } from '../qemu/vsock/guest-link.ts'
import { pathOf } from '../spec/component-path.ts'

/**
 * How the daemon reaches the agent of a template and of its clones. QEMU and the kernel have all of it, so clones share memory. All
 * have the same addresses, each on a tap of its own: link-local ones, which the kernel tells apart by the interface.
 */
const LINK = { ip: 'fe80::2', peerIp: 'fe80::1' } as const
const MAC = '52:54:00:00:02:01'
const WORDS = `agent.server_addr=tcp://[::]:${AGENT_PORT} agent.server_peer=${LINK.peerIp}`
const KEYS = {
  card: 'template-card',
  tap: 'template-tap',
  item: 'template-link',
  content: 'template-link-content',
}

/** Throws INVALID_ARGUMENT for what clones cannot share. */
export function checkTemplate({ backends, devices }: Specification): void {
  const fail = (text: string) => new AgentError('INVALID_ARGUMENT', `specification.${text}`)
  for (const [key, backend] of Object.entries(backends)) {
    const at = pathOf('backends', key)
    if (Object.values(KEYS).includes(key)) throw fail(`${at}: the name is the daemon's`)
    if (backend.console !== undefined) continue
    if (backend.file === undefined)
      throw fail(`${at}: clones of a template cannot have it, want a file or a console`)
    if (backend.file.access !== File_Access.READ_ONLY)
      throw fail(`${at}.file.access: clones of a template share the disk, want READ_ONLY`)
  }
  for (const key of Object.keys(devices))
    if (Object.values(KEYS).includes(key)) throw fail(`${pathOf('devices', key)}: the name is the daemon's`)
}

/** Writes what a guest is told of its link, which is the same for all: clones that start read it meanwhile. */
export async function writeLinkItem(path: string): Promise<void> {
  const metadata = VMMetadata.fromPartial({ networkConfig: { v6: LINK } })
  await mkdir(dirname(path), { recursive: true, mode: 0o700 })
  await writeFile(`${path}.new`, VMMetadata.encode(metadata).finish(), { mode: 0o600 })
  await rename(`${path}.new`, path)
}

/** The machine with the link. `interfaceName` is of no other, and `itemPath` what {@link writeLinkItem} has written. */
export function withLink(
  { backends, board, devices, ...others }: Specification,
  { interfaceName, itemPath }: { readonly interfaceName: string; readonly itemPath: string },
): Specification {
  const slots = new Set(Object.values(devices).map(({ slot }) => slot))
  let slot = LAST_SLOT
  while (slots.has(slot)) slot--
  const nic = { mac: MAC, filters: ['agent-only'] }
  return {
    ...others,
    board: board && { ...board, commandLine: `${board.commandLine} ${WORDS}`.trim() },
    devices: {
      ...devices,
      [KEYS.card]: Device.fromPartial({ backend: KEYS.tap, slot, nic }),
      [KEYS.item]: Device.fromPartial({ backend: KEYS.content, firmwareItem: { name: METADATA_ITEM } }),
    },
    backends: {
      ...backends,
      [KEYS.tap]: Backend.fromPartial({ tap: { interfaceName } }),
      [KEYS.content]: Backend.fromPartial({ content: { path: itemPath } }),
    },
  }
}

const LAST_SLOT = 30

/** Resolves once the agent of the guest has answered, and has run a container. */
export async function agentIsReady(instances: Instances, key: string, caller: Caller): Promise<void> {
  const connect = async () =>
    Duplex.from((input: AsyncIterable<Uint8Array>) => instances.connectAgent(key, input, caller))
  const connection = await connectAgent({ connect }, caller.signal)
  try {
    const { rehearse } = await import('./rehearsal.ts')
    await rehearse(connection, caller.signal)
  } finally {
    connection.close()
  }
}
