import { AgentError } from '../../base/errors.ts'
import { removeIfPresent, type UndoList, undoOnFailure } from '../../base/undo.ts'
import type { ARPNeighbor } from '../../gen/types.ts'
import type { Failures, Link, Neighbor, Network } from '../../os/network/network.ts'
import {
  checkAddress,
  checkHardwareAddress,
  checkHardwareAddressFits,
  checkNumber,
  invalid,
} from './check-fields.ts'
import type { NetworkContext } from './context.ts'
import { inBatches } from './in-batches.ts'

const NUD_PERMANENT = 0x80
const MAX_U16 = 0xffff
const MAX_U8 = 0xff

/** Throws INVALID_ARGUMENT for a wrong field, `Link not found (Name: …)`, or the kernel's error after an undo. */
export function addNeighbors(
  dependencies: NetworkContext,
  neighbors: readonly ARPNeighbor[],
  signal: AbortSignal,
): Promise<void> {
  return dependencies.queues.neighbors.run(() => addAll(dependencies, neighbors), signal)
}

async function addAll({ os, log, record }: NetworkContext, neighbors: readonly ARPNeighbor[]): Promise<void> {
  const { network } = os
  const links = new Map(network.links().map((link) => [link.name, link]))
  const wanted = neighbors.map((neighbor, index) => checkNeighbor(`neighbors[${index}]`, neighbor, links))
  const present = new Map(network.neighbors().map((neighbor) => [keyOf(neighbor), neighbor]))
  await undoOnFailure(log, async (onFailure) => {
    await inBatches(wanted, (batch) => replaceBatch(network, batch, present, onFailure))
  })
  const byDevice = Map.groupBy(neighbors, ({ device }) => device)
  record.note(
    'rpc',
    Array.from(byDevice, ([device, added]) => ({
      kind: 'neighbors',
      subject: device,
      value: `${added.length} added`,
    })),
  )
}

/** Throws the first error; other entries of the batch may have been added, and have their undo. */
function replaceBatch(
  network: Network,
  batch: readonly Neighbor[],
  before: ReadonlyMap<string, Neighbor>,
  onFailure: UndoList,
): void {
  const addUndo = (neighbor: Neighbor) => {
    const old = before.get(keyOf(neighbor))
    onFailure.add(`neighbour ${neighbor.address}`, async () => {
      if (old === undefined) await removeIfPresent('ENOENT', () => network.removeNeighbor(neighbor))
      else network.replaceNeighbor(old)
    })
  }
  let failures: Failures
  try {
    failures = network.replaceNeighbors(batch)
  } catch (error) {
    // The kernel's answers are lost (ENOBUFS), so any of the entries may have been added.
    batch.forEach(addUndo)
    throw error
  }
  batch.filter((_, index) => failures[index] === undefined).forEach(addUndo)
  const refused = failures.find((failure) => failure !== undefined)
  if (refused !== undefined) throw refused
}

function checkNeighbor(field: string, neighbor: ARPNeighbor, links: ReadonlyMap<string, Link>): Neighbor {
  const { toIPAddress, device, lladdr, state, flags } = neighbor
  if (toIPAddress === undefined || toIPAddress.address === '')
    throw invalid(`${field}.toIPAddress`, '', 'required')
  const link = links.get(device)
  const checked = {
    ...checkAddress(`${field}.toIPAddress.address`, toIPAddress.address),
    hardwareAddress: lladdr === '' ? '' : checkHardwareAddress(`${field}.lladdr`, lladdr),
    state: state === 0 ? NUD_PERMANENT : checkNumber(`${field}.state`, state, MAX_U16),
    flags: checkNumber(`${field}.flags`, flags, MAX_U8),
  }
  if (link === undefined)
    throw new AgentError('INTERNAL', `Link not found (Name: ${device})`, { fault: 'caller' })
  if (lladdr !== '') checkHardwareAddressFits(`${field}.lladdr`, checked.hardwareAddress, link)
  return { ...checked, linkIndex: link.index }
}

function keyOf({ linkIndex, address }: Neighbor): string {
  return `${linkIndex} ${address}`
}
