import { spawnSync } from 'node:child_process'
import { constants } from 'node:fs'
import { delimiter, join } from 'node:path'
import { AgentError } from '../../base/errors.ts'
import { cached } from '../../build/cache.ts'
import { extractPackage, fetchPackages } from '../../debian/packages.ts'
import { hasAccess } from '../host.ts'

const PROGRAM = 'vhost-device-vsock'

/**
 * The path of vhost-device-vsock: on PATH, or else from the package of Debian sid, which is verified by apt's signatures,
 * unpacked below build/ and never installed. Later runs find it there. Throws UNAVAILABLE when neither has it.
 */
export async function findVsockDaemon(progress: (line: string) => void): Promise<string> {
  const installed = (process.env.PATH ?? '').split(delimiter).map((folder) => join(folder, PROGRAM))
  const found = installed.find((path) => hasAccess(path, constants.X_OK))
  if (found !== undefined) return found
  const [fetched] = await fetchPackages({ suite: 'sid', packages: [PROGRAM], progress })
  if (fetched === undefined) throw new AgentError('UNAVAILABLE', `Debian sid gave no package ${PROGRAM}`)
  const folder = await cached(PROGRAM, { values: [fetched.version] }, async (target) => {
    await extractPackage(fetched.path, target)
    checkItStarts(join(target, 'usr/bin', PROGRAM))
  })
  return join(folder, 'usr/bin', PROGRAM)
}

/** Checks that the program starts: the package is of a newer Debian, and its libraries may be missing here. */
function checkItStarts(program: string): void {
  const result = spawnSync(program, ['--version'], { encoding: 'utf8', timeout: 10_000 })
  if (result.status === 0) return
  const reason = result.error?.message ?? result.stderr.trim()
  throw new AgentError('UNAVAILABLE', `${PROGRAM} of Debian sid does not start on this machine: ${reason}`)
}
