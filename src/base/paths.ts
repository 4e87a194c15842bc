/** Whether `path` is `folder` or lies below it. Both are absolute and normalised; nothing is looked up. */
export function isWithin(path: string, folder: string): boolean {
  return path === folder || path.startsWith(`${folder}/`)
}
