import { constants } from 'node:fs'
import { open, realpath } from 'node:fs/promises'
import { AgentError, errnoOf, messageOf } from '../../base/errors.ts'
import type { Backend, NetworkDisk } from '../spec/spec.ts'
import { type Catalogue, NO_CATALOGUE, readCatalogue } from './catalogue.ts'
import { followPath } from './fixed-path.ts'

/** Read anew at each start of an instance. */
const CATALOGUE_FILE = '/etc/microvm/catalogue.toml'

const MAX_BYTES = 4 << 20
const OTHERS_WRITE = 0o022

/**
 * Reads the catalogue, at another path than usual if one is given; without the usual file it is empty. Throws
 * FAILED_PRECONDITION that names the file, with the field that is wrong, and for a file that others than root and the daemon's
 * user may write or replace.
 */
export async function openCatalogue(other?: string): Promise<Catalogue> {
  const path = other ?? CATALOGUE_FILE
  const text = await readOwn(path)
  if (text === undefined && other === undefined) return NO_CATALOGUE
  if (text === undefined) throw new AgentError('FAILED_PRECONDITION', `${path}: ENOENT`)
  try {
    const { parse } = await import('smol-toml')
    return readCatalogue(parse(text))
  } catch (error) {
    const [reason = ''] = messageOf(error).split('\n')
    throw new AgentError('FAILED_PRECONDITION', `${path}: ${reason}`, { cause: error })
  }
}

async function readOwn(path: string): Promise<string | undefined> {
  const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `${path}: ${text}`)
  try {
    // A FIFO would make it wait for a writer.
    await using file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
    const status = await file.stat()
    if (!status.isFile()) throw fail('want a file')
    if (![0, process.getuid?.()].includes(status.uid)) throw fail(`user ${status.uid} owns it, want root`)
    const mode = (status.mode & 0o777).toString(8)
    if ((status.mode & OTHERS_WRITE) !== 0) throw fail(`mode ${mode}: others may write it, want 644`)
    if (!(await followPath(path)).isFixed)
      throw fail('others may replace it, want folders that only root may write')
    if (status.size > MAX_BYTES) throw fail(`${status.size} bytes, want at most ${MAX_BYTES}`)
    return await file.readFile('utf8')
  } catch (error) {
    const code = error instanceof AgentError ? undefined : errnoOf(error)
    if (code === 'ENOENT') return undefined
    if (code === 'ELOOP') throw fail('a link, want a file')
    throw code === undefined ? error : fail(code)
  }
}

/**
 * Throws FAILED_PRECONDITION naming the backend whose path leads out of the catalogue's roots, or which others than root and
 * the daemon's user could make lead elsewhere: QEMU opens it later. Paths that are below no root are an administrator's own.
 * So is one that is missing: it could be made to lead elsewhere by then.
 */
export async function checkLinks(
  { roots }: Catalogue,
  backends: Readonly<Record<string, Backend | NetworkDisk>>,
): Promise<void> {
  const own = await Promise.all(roots.map((root) => realpath(root).catch(() => root)))
  for (const [key, backend] of Object.entries(backends)) {
    const path = 'path' in backend ? backend.path : 'tls' in backend ? backend.tls?.ca : undefined
    if (path === undefined || !roots.some((root) => path.startsWith(`${root}/`))) continue
    const fail = (text: string) => new AgentError('FAILED_PRECONDITION', `backends.${key}: ${path}: ${text}`)
    const found = await followPath(path).catch((error) => {
      const code = errnoOf(error) ?? messageOf(error)
      throw fail(code === 'ELOOP' ? 'its links are a loop' : code)
    })
    if (!own.some((root) => found.real.startsWith(`${root}/`)))
      throw fail(`leads to ${found.real}, which is in none of ${roots.join(', ')}`)
    if (!found.isFixed) throw fail('others can replace it, want folders on its way that only root may write')
  }
}
