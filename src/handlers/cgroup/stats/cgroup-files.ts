import type { Files } from '../../../os/files/files.ts'

/** The files of one cgroup, by controller (cgroup v2 has one folder for all) and name. */
export interface CgroupFiles {
  /** Undefined when the kernel lacks the file, or the cgroup the controller. */
  read(controller: string, name: string): Promise<string | undefined>
  names(controller: string): Promise<readonly string[]>
}

export function cgroupFiles(
  files: Pick<Files, 'readText' | 'list'>,
  folderOf: (controller: string) => string,
): CgroupFiles {
  return {
    read: (controller, name) => files.readText(`${folderOf(controller)}/${name}`).catch(() => undefined),
    names: (controller) => files.list(folderOf(controller)).catch(() => []),
  }
}
