package clientgen

func generateGo(apis []*API) ([]File, error) {
	return nil, nil
}
