import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { Os } from '../../../os/os.ts'
import type { StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'

/** The tag of the folder that the host shares with the whole sandbox. */
const SANDBOX_FOLDER = 'kataShared'

/**
 * A folder of the host, by its tag (spec E.3). That of the sandbox may be mounted already. `hints` say what an errno of
 * mount(2) means for this file system; ENODEV always means that the kernel has none.
 */
function sharedFolder(name: string, hints: Readonly<Record<string, string>> = {}): StorageDriver {
  return {
    async attach(storage, dependencies, signal) {
      const { mountPoint } = storage
      if (await isShared(storage, dependencies.os)) return { mountPoint, kind: 'found', keep: false }
      try {
        await mountStorage(storage, dependencies, signal)
      } catch (error) {
        throw explained(error, { name, hints, storage })
      }
      return { mountPoint, kind: 'mount', keep: false }
    },
  }
}

/** Whether the sandbox's folder is mounted there already (spec E.2.1). */
async function isShared({ source, mountPoint }: Storage, { mounts }: Pick<Os, 'mounts'>): Promise<boolean> {
  if (source !== SANDBOX_FOLDER) return false
  return (await mounts.list()).findLast((mount) => mount.mountPoint === mountPoint)?.source === source
}

function explained(
  error: unknown,
  context: {
    readonly name: string
    readonly hints: Readonly<Record<string, string>>
    readonly storage: Storage
  },
): unknown {
  const { name, hints, storage } = context
  const errno = errnoOf(error)
  if (errno === undefined) return error
  if (errno === 'ENODEV') {
    const text = `storage ${storage.mountPoint}: the guest's kernel has no ${name}`
    return new AgentError('UNIMPLEMENTED', text, { cause: error, errno })
  }
  const hint = hints[errno]
  if (hint === undefined) return error
  const text = `mount ${storage.source} on ${storage.mountPoint}: ${errno}: ${hint}`
  return new AgentError('INTERNAL', text, { cause: error, errno })
}

/** A folder of the host over 9p, which Debian's cloud kernel does not have. */
export const nineP = sharedFolder('9p', { ENOENT: 'no 9p device has this tag' })

/** A folder of the host that a virtio-fs device offers (spec E.3). */
export const virtioFs = sharedFolder('virtiofs', {
  EINVAL: 'no virtio-fs device has this tag, or an option is unknown to it',
})
