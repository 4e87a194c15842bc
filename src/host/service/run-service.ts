import { join } from 'node:path'
import { silentLogger } from '../../base/log.ts'
import { openRunInstances } from '../instance/open-host-instances.ts'
import { memoryRegistry } from '../instance/registry/memory-registry.ts'
import { openSecrets } from '../secrets/secrets.ts'
import { MAX_SOCKET_PATH_BYTES } from '../spec/limits.ts'
import { checkFolderLength } from './api-sockets.ts'
import { CallJournal } from './call-journal.ts'
import { openApi } from './open-api.ts'

export interface RunService {
  readonly socket: string
  /** Kills the machines that are left. */
  close(): Promise<void>
}

/** The longest path of a socket is `vm/run/vsock.sock_PORT`. */
const MAX_FOLDER_BYTES = MAX_SOCKET_PATH_BYTES - '/vm/run/vsock.sock_4294967295'.length

/** Serves machines that end with this process, as a daemon without tenants does. The folder is private and empty. */
export async function startRunService(options: {
  readonly folder: string
  /** MICROVM_ACCEL. */
  readonly acceleration: string | undefined
}): Promise<RunService> {
  const { folder, acceleration } = options
  checkFolderLength(folder, 'a shorter TMPDIR', MAX_FOLDER_BYTES)
  const log = silentLogger()
  const registry = memoryRegistry()
  const journal = await CallJournal.open({ registry, nowMs: Date.now, log })
  const secrets = await openSecrets(join(folder, 'secrets'))
  const instances = await openRunInstances({ stateFolder: folder, registry, secrets, log, acceleration })
  const api = openApi({ instances, secrets, journal, tenants: [], log })
  const socket = join(folder, 'api.sock')
  await api.listen(socket)
  return {
    socket,
    close: async () => {
      await instances.close()
      await api.close()
    },
  }
}
