import { AgentError, errnoOf } from '../../../base/errors.ts'
import type { Storage } from '../../../gen/agent.ts'
import type { Os } from '../../../os/os.ts'
import type { StorageDriver } from '../driver.ts'
import { mountStorage } from '../mount-storage.ts'

/** The tag of the folder that the host shares with the sandbox. */
const SANDBOX_FOLDER = 'kataShared'

/** Mounts a host folder by its tag; the sandbox's may be mounted already. `hints` explains errnos of mount(2). */
function sharedFolder(hints: Readonly<Record<string, string>> = {}): StorageDriver {
  return {
    async attach(storage, dependencies, signal) {
      const { mountPoint } = storage
      if (await isSandboxFolderMounted(storage, dependencies.os))
        return { mountPoint, kind: 'existing', keep: false }
      try {
        await mountStorage(storage, dependencies, signal)
      } catch (error) {
        throw withHint(error, { hints, storage })
      }
      return { mountPoint, kind: 'mount', keep: false }
    },
  }
}

async function isSandboxFolderMounted(
  { source, mountPoint }: Storage,
  { mounts }: Pick<Os, 'mounts'>,
): Promise<boolean> {
  if (source !== SANDBOX_FOLDER) return false
  return (await mounts.list()).findLast((mount) => mount.mountPoint === mountPoint)?.source === source
}

function withHint(
  error: unknown,
  context: {
    readonly hints: Readonly<Record<string, string>>
    readonly storage: Storage
  },
): unknown {
  const { hints, storage } = context
  const errno = errnoOf(error)
  if (errno === undefined) return error
  const hint = hints[errno]
  if (hint === undefined) return error
  const text = `mount ${storage.source} on ${storage.mountPoint}: ${errno}: ${hint}`
  return new AgentError('INTERNAL', text, { cause: error, errno })
}

/** A host folder over 9p, which Debian's cloud kernel does not have. */
export const nineP = sharedFolder({ ENOENT: 'no 9p device has this tag' })

export const virtioFs = sharedFolder({
  EINVAL: 'no virtio-fs device has this tag, or it does not know an option',
})
