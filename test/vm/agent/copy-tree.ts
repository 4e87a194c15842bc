import { lstatSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { join } from 'node:path'
import type { AgentServiceDefinition } from '../../../src/gen/agent.ts'
import type { ServiceClient } from '../../../src/rpc/client.ts'

/** Both shims use this chunk size. */
const CHUNK_BYTES = 2 ** 20

/** Copies a tree of this machine to the guest, entry by entry, as a shim without shared folders copies volumes. */
export async function copyTree(
  agent: Pick<ServiceClient<typeof AgentServiceDefinition>, 'copyFile'>,
  from: string,
  to: string,
): Promise<void> {
  const status = lstatSync(from)
  const { mode: fileMode, uid, gid } = status
  const entry = { path: to, fileMode, dirMode: 0o750, uid, gid }
  if (status.isSymbolicLink()) {
    await agent.copyFile({ ...entry, data: Buffer.from(readlinkSync(from)) })
    return
  }
  if (status.isDirectory()) {
    await agent.copyFile(entry)
    for (const name of readdirSync(from)) await copyTree(agent, join(from, name), `${to}/${name}`)
    return
  }
  const content = readFileSync(from)
  const fileSize = BigInt(content.length)
  for (let offset = 0; offset === 0 || offset < content.length; offset += CHUNK_BYTES) {
    const data = content.subarray(offset, offset + CHUNK_BYTES)
    await agent.copyFile({ ...entry, fileSize, offset: BigInt(offset), data })
  }
}
