import type { Files } from '../../../os/files/files.ts'

/** The files of one cgroup, by controller (which cgroup v2 does not tell apart) and name. */
export interface CgroupFiles {
  /** The text; undefined when it cannot be read: the kernel lacks it, the cgroup has no such controller, or is gone. */
  read(controller: string, name: string): Promise<string | undefined>
  /** All names of a controller's files. */
  names(controller: string): Promise<readonly string[]>
}

/** Files of cgroups, each controller's in the folder that `folderOf` names. */
export function cgroupFiles(
  files: Pick<Files, 'readText' | 'list'>,
  folderOf: (controller: string) => string,
): CgroupFiles {
  return {
    read: (controller, name) => files.readText(`${folderOf(controller)}/${name}`).catch(() => undefined),
    names: (controller) => files.list(folderOf(controller)).catch(() => []),
  }
}
