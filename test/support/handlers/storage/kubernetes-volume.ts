import { dirname } from 'node:path/posix'
import type { Files } from '../../../../src/os/files/files.ts'

export type Version = Readonly<Record<string, string>>

/**
 * Writes a version of a ConfigMap or Secret as kubelet does: a rename switches the link `..data` to the new folder, and
 * each file has a link through `..data`. `prepared` stops before the switch, `switched` right after it, before the
 * clean-up.
 */
export async function publish(
  files: Files,
  volume: string,
  name: string,
  version: Version,
  steps: 'prepared' | 'switched' | 'all' = 'all',
): Promise<void> {
  await files.makeDirectories(`${volume}/${name}`, 0o755)
  for (const [file, content] of Object.entries(version)) {
    await files.write(`${volume}/${name}/${file}`, content, { mode: 0o644 })
  }
  const old = (await files.lstat(`${volume}/..data`)) && (await files.readLink(`${volume}/..data`))
  await files.symlink(name, `${volume}/..data_tmp`)
  if (steps === 'prepared') return
  await files.rename(`${volume}/..data_tmp`, `${volume}/..data`)
  if (steps === 'switched') return
  const links = (await files.list(volume)).filter((each) => !each.startsWith('..'))
  for (const file of Object.keys(version)) {
    if (!links.includes(file)) await files.symlink(`..data/${file}`, `${volume}/${file}`)
  }
  for (const link of links) if (!(link in version)) await files.removeFile(`${volume}/${link}`)
  if (old !== undefined) await files.removeTree(`${volume}/${old}`)
}

/** The entries of a tree by path: file contents, `-> target` for links, an empty text for folders. */
export async function treeOf(files: Files, path: string, top = path): Promise<Record<string, string>> {
  const tree: Record<string, string> = {}
  for (const name of await files.list(path)) {
    const each = `${path}/${name}`
    const kind = (await files.lstat(each))?.kind
    const key = each.slice(dirname(`${top}/x`).length + 1)
    if (kind === 'symlink') tree[key] = `-> ${await files.readLink(each)}`
    else if (kind === 'directory') Object.assign(tree, { [key]: '' }, await treeOf(files, each, top))
    else tree[key] = await files.readText(each)
  }
  return tree
}
