import { existsSync, realpathSync } from 'node:fs'
import { basename, join } from 'node:path'
import { tool } from '../build/tool.ts'

/** Debian's folder of shared libraries on x86-64. */
export const LIBRARIES = 'usr/lib/x86_64-linux-gnu'

/**
 * The shared libraries that the ELF files `programs` need, directly or through other libraries: from soname to the file
 * below `root`, the unpacked packages. The machine's own libraries are never used. Throws for a library that no package has.
 */
export async function libraryClosure(
  root: string,
  programs: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const found = new Map<string, string>()
  for (let files = programs; files.length > 0; ) {
    const sonames = (await neededBy(files)).filter((soname) => !found.has(soname))
    files = sonames.map((soname) => {
      const file = findLibrary(root, soname)
      if (file === undefined)
        throw new Error(
          `${soname}: in no package, but ${files.map((path) => basename(path)).join(' or ')} needs it`,
        )
      found.set(soname, file)
      return file
    })
  }
  return found
}

async function neededBy(files: readonly string[]): Promise<readonly string[]> {
  const dynamic = await readelf(['--dynamic', ...files])
  const sonames = Array.from(dynamic.matchAll(/\(NEEDED\).*\[(.+)\]/g), (match) => match[1] ?? '')
  return [...new Set(sonames)].sort()
}

function findLibrary(root: string, soname: string): string | undefined {
  const path = join(root, LIBRARIES, soname)
  return existsSync(path) ? realpathSync(path) : undefined
}

/**
 * The highest version of glibc's symbols, such as 2.38, that the ELF files `files` name: those that a program needs, or
 * those that libc.so.6 has. 0 when they name none.
 */
export async function highestGlibc(files: readonly string[]): Promise<string> {
  const versions = await readelf(['--version-info', ...files])
  const found = [...versions.matchAll(/\bName: GLIBC_(\d+\.\d+)/g)].map(([, version = '0']) => version)
  return found.toSorted(compareGlibc).at(-1) ?? '0'
}

/** The order of two versions of glibc: 2.9 before 2.38. */
export function compareGlibc(a: string, b: string): number {
  return a.localeCompare(b, 'en', { numeric: true })
}

function readelf(args: readonly string[]): Promise<string> {
  return tool('readelf', ['--wide', ...args], { debianPackage: 'binutils' })
}
