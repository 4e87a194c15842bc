/** Both paths are absolute and normalised; symbolic links are not followed. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`)
}
