import type { AgentError } from '../../../../base/errors.ts'

/** A folder of the upper layer that is made before the layers are laid over each other. */
export interface LayerDirectory {
  /** Below the layer's own root. */
  readonly path: string
  readonly mode: number
  readonly owner: { readonly uid: number; readonly gid: number } | undefined
}

/** How the host names the upper layer in a path: it is the first of what it mounts. */
const UPPER = '{{ mount 0 }}'

const DEFAULT_MODE = 0o755

/**
 * Reads `{{ mount 0 }}/path`, which mode and owner may follow: `:0755`, `:0755:0:0`. Throws what `refused` makes of the
 * reason for what leads elsewhere than into the upper layer.
 */
export function parseLayerDirectory(value: string, refused: (reason: string) => AgentError): LayerDirectory {
  const [template = '', mode, uid, gid, ...more] = value.split(':')
  const path = (template.startsWith(UPPER) ? template.slice(UPPER.length) : template).replace(/^\//, '')
  if (path.includes('{{')) throw refused(`names a layer that cannot be written to: '${value}'`)
  if (path.split('/').some((name) => name === '' || name === '.' || name === '..')) {
    throw refused(`is no plain path: '${value}'`)
  }
  const isPlainMode = mode === undefined || /^[0-7]{1,4}$/.test(mode)
  const isOwner = uid === undefined || (gid !== undefined && isId(uid) && isId(gid))
  if (!isPlainMode || !isOwner || more.length > 0) throw refused(`is path:mode:uid:gid, not '${value}'`)
  return {
    path,
    mode: mode === undefined ? DEFAULT_MODE : Number.parseInt(mode, 8),
    owner: uid === undefined ? undefined : { uid: Number(uid), gid: Number(gid) },
  }
}

/** The highest value means "leave it" to chown(2). */
function isId(text: string): boolean {
  return /^\d{1,10}$/.test(text) && Number(text) < 0xff_ff_ff_ff
}
