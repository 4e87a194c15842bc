import { createHash } from 'node:crypto'
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { gzipSync } from 'node:zlib'

export interface TestImage {
  /** Tar archives, the lowest layer first. */
  readonly layers: readonly Buffer[]
  /** The `config` member of the image's configuration: Entrypoint, Cmd, Env, User, WorkingDir. */
  readonly config: Readonly<Record<string, unknown>>
}

const MEDIA_TYPES = 'application/vnd.oci.image'

/** Writes an image layout of the OCI image specification with one image, tagged `latest`, whose layers are gzipped. */
export function writeOciLayout(layout: string, { layers, config }: TestImage): void {
  mkdirSync(join(layout, 'blobs/sha256'), { recursive: true })
  const blob = (kind: string, content: Buffer) => {
    const hash = sha256(content)
    writeFileSync(join(layout, 'blobs/sha256', hash), content)
    return { mediaType: `${MEDIA_TYPES}.${kind}`, digest: `sha256:${hash}`, size: content.length }
  }
  const json = (kind: string, value: unknown) => blob(kind, Buffer.from(JSON.stringify(value)))
  const manifest = json('manifest.v1+json', {
    schemaVersion: 2,
    mediaType: `${MEDIA_TYPES}.manifest.v1+json`,
    config: json('config.v1+json', {
      architecture: 'amd64',
      os: 'linux',
      config,
      rootfs: { type: 'layers', diff_ids: layers.map((layer) => `sha256:${sha256(layer)}`) },
    }),
    layers: layers.map((layer) => blob('layer.v1.tar+gzip', gzipSync(layer))),
  })
  const annotations = { 'org.opencontainers.image.ref.name': 'latest' }
  writeFileSync(join(layout, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}')
  writeFileSync(
    join(layout, 'index.json'),
    JSON.stringify({ schemaVersion: 2, manifests: [{ ...manifest, annotations }] }),
  )
}

function sha256(content: Buffer): string {
  return createHash('sha256').update(content).digest('hex')
}
