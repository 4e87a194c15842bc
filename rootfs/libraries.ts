import { existsSync, realpathSync } from 'node:fs'
import { basename, join } from 'node:path'
import { tool } from '../src/build/tool.ts'

/** Where Debian keeps shared libraries on x86-64. */
const FOLDERS = ['usr/lib/x86_64-linux-gnu', 'lib/x86_64-linux-gnu']

/**
 * The shared libraries that the ELF files `programs` need, and those that these need in turn: from soname to the
 * file below `root` (an unpacked set of packages, never the machine's own). Throws for one that is not there.
 */
export async function libraryClosure(
  root: string,
  programs: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for (let files = programs; files.length > 0; ) {
    const sonames = (await neededBy(files)).filter((soname) => !found.has(soname))
    files = sonames.map((soname) => {
      const file = locate(root, soname)
      if (file === undefined)
        throw new Error(
          `${soname}, needed by ${files.map((path) => basename(path)).join(' or ')}, is in no package`,
        )
      found.set(soname, file)
      return file
    })
  }
  return found
}

async function neededBy(files: readonly string[]): Promise<readonly string[]> {
  const dynamic = await tool('readelf', ['--dynamic', '--wide', ...files], { debianPackage: 'binutils' })
  const sonames = Array.from(dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g), (match) => match[1] ?? '')
  return [...new Set(sonames)].sort()
}

function locate(root: string, soname: string): string | undefined {
  const path = FOLDERS.map((folder) => join(root, folder, soname)).find((candidate) => existsSync(candidate))
  return path === undefined ? undefined : realpathSync(path)
}
