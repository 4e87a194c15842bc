import type { QmpClient } from '../../qemu/qmp/client.ts'
import type { BlockNode } from '../../qemu/qmp/commands.ts'

/** The name of a file that QEMU was given open. */
const SET = /^\/dev\/fdset\/(\d+)$/

/** QEMU's block nodes, each with the path of its file, also where QEMU has that open already. */
export async function blockNodes(qmp: QmpClient, signal: AbortSignal): Promise<readonly BlockNode[]> {
  const nodes = await qmp.execute('query-named-block-nodes', { flat: true }, signal)
  if (!nodes.some(({ file }) => SET.test(file))) return nodes
  const sets = await qmp.execute('query-fdsets', {}, signal)
  const paths = new Map(sets.map((set) => [set['fdset-id'], set.fds[0]?.opaque]))
  return nodes.map((node) => ({ ...node, file: paths.get(setOf(node) ?? -1) ?? node.file }))
}

/** Closes the files in QEMU that no block node has any more. */
export async function closeUnused(qmp: QmpClient, signal: AbortSignal): Promise<void> {
  const [sets, nodes] = await Promise.all([
    qmp.execute('query-fdsets', {}, signal),
    qmp.execute('query-named-block-nodes', { flat: true }, signal),
  ])
  const used = new Set(nodes.map(setOf))
  for (const set of sets) {
    const id = set['fdset-id']
    if (!used.has(id)) await qmp.execute('remove-fd', { 'fdset-id': id }, signal).catch(() => {})
  }
}

function setOf({ file }: BlockNode): number | undefined {
  const [, set] = SET.exec(file) ?? []
  return set === undefined ? undefined : Number(set)
}
