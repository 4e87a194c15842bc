import { writeFileSync } from 'node:fs'

export function printed(output: string): string {
  return `large messages\nlong polls\ndeadline\nhang-up\n${output}`
}

/**
 * The case of a foreign client: it creates a container, prints its output, and exits with `status` at the end of its input.
 */
export interface ForeignCase {
  readonly container: string
  readonly output: string
  readonly status: number
  /** A folder that the agent sees, or the mount point of a storage. */
  readonly rootPath: string
  readonly storages?: readonly Readonly<Record<string, string>>[]
}

/** Uses the field names of the proto files, on which both JSON mappings agree. */
export function writeCase(path: string, wanted: ForeignCase): void {
  const request = {
    container_id: wanted.container,
    storages: wanted.storages ?? [],
    OCI: {
      Version: '1.0.2',
      Process: {
        User: { UID: 0, GID: 0 },
        Args: [
          '/bin/sh',
          '-c',
          `printf '${wanted.output.replaceAll('\n', '\\n')}'; cat; exit ${wanted.status}`,
        ],
        Env: ['PATH=/bin:/usr/bin:/sbin'],
        Cwd: '/',
        Capabilities: { Bounding: ['CAP_KILL'] },
      },
      Root: { Path: wanted.rootPath, Readonly: true },
      Mounts: [
        { destination: '/proc', source: 'proc', type: 'proc' },
        { destination: '/dev', source: 'tmpfs', type: 'tmpfs' },
      ],
      Linux: { Namespaces: [{ Type: 'mount' }, { Type: 'ipc' }, { Type: 'uts' }] },
    },
  }
  const text = { Container: wanted.container, Request: request, Output: wanted.output, Status: wanted.status }
  writeFileSync(path, JSON.stringify(text))
}
