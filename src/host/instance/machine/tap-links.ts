import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { AgentError, messageOf } from '../../../base/errors.ts'
import { checkLinks, METADATA_ITEM, type PointToPoint } from '../../../base/vm-metadata/point-to-point.ts'
import { VMMetadata } from '../../../gen/vm.ts'
import { BACKEND_FIELDS, pathOf } from '../../spec/component-path.ts'
import type { VmSpec } from '../../spec/spec.ts'
import type { SpecKey } from '../../spec/spec-key.ts'

/** The two ends of the link that a tap is, as the guest is told by its VMMetadata. */
export type TapLink = Pick<PointToPoint, 'ip' | 'peerIp'>

/**
 * The backend that is the machine's only tap, with its links; undefined without VMMetadata, and where several taps leave
 * open which of them the guest gives its address. `own` is VMMetadata that no file has yet. Throws FAILED_PRECONDITION for metadata
 * that cannot be read.
 */
export async function linksOfTap(
  spec: VmSpec,
  own?: Uint8Array,
): Promise<{ readonly key: SpecKey; readonly links: readonly TapLink[] } | undefined> {
  const { devices, backends } = spec
  const taps = Object.values(devices).flatMap((device) =>
    device.kind === 'nic' && backends[device.backend]?.kind === 'tap' ? [device.backend] : [],
  )
  const item = Object.values(devices).find((each) => each.kind === 'fw-cfg' && each.name === METADATA_ITEM)
  const content = item?.kind === 'fw-cfg' ? backends[item.backend] : undefined
  const [key, ...others] = taps
  if (key === undefined || others.length > 0) return
  if (own !== undefined) return { key, links: checkLinks(VMMetadata.decode(own).networkConfig).links }
  if (item?.kind !== 'fw-cfg' || content?.kind !== 'content') return
  try {
    const { networkConfig } = VMMetadata.decode(await readItem(content.path))
    return { key, links: checkLinks(networkConfig).links }
  } catch (error) {
    const path = pathOf('backends', item.backend, BACKEND_FIELDS.content, 'path')
    throw new AgentError('FAILED_PRECONDITION', `${path}: VM metadata not read: ${messageOf(error)}`, {
      cause: error,
    })
  }
}

/** The agent takes no more (src/handlers/network/vm-metadata). */
const MAX_METADATA_BYTES = 64 * 1024

/** Waits for no writer, should a FIFO have come into the file's place. */
async function readItem(path: string): Promise<Buffer> {
  await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_METADATA_BYTES + 1), 0, null, 0)
  if (bytesRead <= MAX_METADATA_BYTES) return buffer.subarray(0, bytesRead)
  throw new AgentError('FAILED_PRECONDITION', `more than ${MAX_METADATA_BYTES} bytes`)
}

/** As words of a step, and back. */
export function wordsOfLinks(links: readonly TapLink[]): readonly string[] {
  return links.flatMap(({ ip, peerIp }) => [ip, peerIp])
}

export function linksOfWords(words: readonly string[]): readonly TapLink[] {
  const [ip, peerIp, ...rest] = words
  return ip === undefined || peerIp === undefined ? [] : [{ ip, peerIp }, ...linksOfWords(rest)]
}
