import { chmod, writeFile } from 'node:fs/promises'
import { join } from 'node:path'

/** The group ffdhe2048 of RFC 7919, which is as long as the one that QEMU computes. */
const FFDHE_2048 = `-----BEGIN DH PARAMETERS-----
MIIBCAKCAQEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD
ssbzSibBsu/6iGtCOGEoXJf//////////wIBAg==
-----END DH PARAMETERS-----
`

/**
 * Gives the folder of a server's certificate its group for Diffie-Hellman. Where there is none, QEMU computes one, which takes it
 * seconds. Every user may read it.
 */
export async function addDhParams(folder: string): Promise<void> {
  const path = join(folder, 'dh-params.pem')
  await writeFile(path, FFDHE_2048)
  await chmod(path, 0o644)
}
