/** One version of a binary package, as a Debian archive's index describes it. */
export interface PackageVersion {
  readonly name: string
  readonly version: string
  readonly architecture: string
  /** Of the .deb file, in hexadecimal; apt checks every download against it. */
  readonly sha256: string
}

/** Reads the output of `apt-cache show`: paragraphs of `Key: value`, continuation lines left aside. */
export function parseStanzas(text: string): readonly PackageVersion[] {
  return text
    .split(/\n\n+/)
    .filter((paragraph) => paragraph.trim() !== '')
    .map((paragraph) => {
      const field = (key: string) => {
        const value = paragraph.match(new RegExp(`^${key}: (.*)$`, 'm'))?.[1]
        if (value === undefined)
          throw new Error(`a package description lacks ${key}: ${paragraph.slice(0, 80)}`)
        return value
      }
      return {
        name: field('Package'),
        version: field('Version'),
        architecture: field('Architecture'),
        sha256: field('SHA256'),
      }
    })
}
