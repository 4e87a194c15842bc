import type { Files } from '../../../os/files/files.ts'

/** The files of one cgroup, by controller (cgroup v2 has one folder for all) and name. */
export interface CgroupFiles {
  /** The text; undefined when the kernel lacks the file, the cgroup has no such controller, or does not exist. */
  read(controller: string, name: string): Promise<string | undefined>
  /** All names of a controller's files. */
  names(controller: string): Promise<readonly string[]>
}

/** Reads files of a cgroup, each controller's in the folder that `folderOf` names. */
export function cgroupFiles(
  files: Pick<Files, 'readText' | 'list'>,
  folderOf: (controller: string) => string,
): CgroupFiles {
  return {
    read: (controller, name) => files.readText(`${folderOf(controller)}/${name}`).catch(() => undefined),
    names: (controller) => files.list(folderOf(controller)).catch(() => []),
  }
}
