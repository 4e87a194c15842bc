import { mkdir, open, rm, symlink } from 'node:fs/promises'
import { join } from 'node:path'
import { AgentError, errnoOf, messageOf } from '../../../base/errors.ts'
import { checkErrno } from '../../../os/errors.ts'
import type { Native } from '../../../os/native.ts'
import { addDhParams } from '../../qemu/dh-params.ts'
import { type BulkQemu, type BulkTls, type HostIdentity, NAMES } from './bulk.ts'

export type TlsRole = 'client' | 'server'

/** QEMU reads certificates by these names in a folder (its manual, "TLS setup for network services"). */
function filesOf(role: TlsRole): Readonly<Record<string, keyof HostIdentity>> {
  return { 'ca-cert.pem': 'ca', [`${role}-cert.pem`]: 'cert', [`${role}-key.pem`]: 'key' }
}

/** Of symbolic links, in the instance's folder. */
const FOLDER = 'move.tls'

/** Longer than any chain of certificates. */
const MAX_BYTES = 256 * 1024

/**
 * Gives QEMU this host's certificate. A server also gets the name that a client's certificate has to have: by itself QEMU takes that
 * of any host of the CA. Throws FAILED_PRECONDITION with QEMU's words for a certificate that is wrong, or whose time is over.
 */
export async function addTls(
  { qmp, folder, isWalled, signal }: BulkQemu,
  role: TlsRole,
  { identity, peer, native }: BulkTls & { readonly native: Native },
): Promise<void> {
  const links = join(folder, FOLDER)
  const sets: number[] = []
  try {
    await rm(links, { recursive: true, force: true })
    await mkdir(links, { mode: 0o711 })
    if (role === 'server') await addDhParams(links)
    for (const [name, field] of Object.entries(filesOf(role))) {
      const fd = await copyOf(native, identity[field])
      try {
        // QEMU may not read the file itself. The answer has the number of its own descriptor.
        const add = { execute: 'add-fd', arguments: { opaque: `${FOLDER}/${name}` } }
        const given = givenFd(await qmp.pass(add, { native, fd }, signal))
        sets.push(given.set)
        await symlink(`/proc/self/fd/${given.fd}`, join(links, name))
      } finally {
        native.close(fd)
      }
    }
    const dir = isWalled ? FOLDER : links
    const credentials = { id: NAMES.credentials, endpoint: role, 'verify-peer': true, dir }
    await addObject({ qmp, signal }, 'tls-creds-x509', credentials).catch((error) => {
      const text = `${identity.cert}: ${messageOf(error)}`
      throw new AgentError('FAILED_PRECONDITION', text, { cause: error })
    })
  } finally {
    // QEMU has read them.
    for (const set of sets) await qmp.execute('remove-fd', { 'fdset-id': set }, signal).catch(() => {})
    await rm(links, { recursive: true, force: true })
  }
  if (role === 'server')
    await addObject({ qmp, signal }, 'authz-simple', { id: NAMES.peer, identity: `CN=${peer}` })
}

/** Removes what `addTls` has made, as far as it is there. */
export async function removeTls({ qmp, folder, signal }: BulkQemu): Promise<void> {
  for (const id of [NAMES.credentials, NAMES.peer]) {
    const objects = await qmp.execute('qom-list', { path: '/objects' }, signal).catch(() => [])
    if (objects.some(({ name }) => name === id)) await qmp.execute('object-del', { id }, signal)
  }
  await rm(join(folder, FOLDER), { recursive: true, force: true })
}

async function addObject(
  { qmp, signal }: Pick<BulkQemu, 'qmp' | 'signal'>,
  type: string,
  properties: Readonly<Record<string, unknown>>,
): Promise<void> {
  await qmp.command({ execute: 'object-add', arguments: { 'qom-type': type, ...properties } }, signal)
}

/** A copy in memory, which QEMU's user may open again. */
async function copyOf(native: Native, path: string): Promise<number> {
  const bytes = await readBounded(path)
  const fd = checkErrno('make', 'a file in memory', native.memoryFile('certificate'))
  const written = native.writeAt(fd, 0, bytes)
  if (written === bytes.length) return fd
  native.close(fd)
  throw new AgentError('INTERNAL', `${path}: ${written} of ${bytes.length} bytes copied`)
}

async function readBounded(path: string): Promise<Buffer> {
  try {
    await using file = await open(path)
    const { buffer, bytesRead } = await file.read(Buffer.alloc(MAX_BYTES), 0, MAX_BYTES, 0)
    if (bytesRead < MAX_BYTES) return buffer.subarray(0, bytesRead)
  } catch (error) {
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${errnoOf(error)}`, { cause: error })
  }
  throw new AgentError('FAILED_PRECONDITION', `${path}: want less than ${MAX_BYTES} bytes`)
}

function givenFd(answer: unknown): { readonly fd: number; readonly set: number } {
  const { fd, 'fdset-id': set } = Object(answer)
  if (typeof fd === 'number' && typeof set === 'number') return { fd, set }
  throw new AgentError('INTERNAL', 'add-fd: no descriptor in the answer')
}
